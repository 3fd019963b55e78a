"""A second name for a file of a hub cache instead of a second copy."""

from __future__ import annotations

import errno
from pathlib import Path

from ..model import PlaceCopy
from .copy import Meter, copy_file, digest_of, require
from .errors import ApplyError

# another file system, one that has no hard links, one that has no room for another name, a protected file
_NO_LINKS = (errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


def place(step: PlaceCopy, target: Path, meter: Meter) -> None:
    """The new file `target`: a copy, or a second name, of what the step names. Errors as `copy_file`."""
    source = Path(step.source).absolute()
    try:
        (link_file if step.link else copy_file)(source, target, step.size, step.digest, meter)
    except ApplyError as error:
        raise ApplyError(f"{error}; with --deep, such a copy is read before it is chosen") from error


def link_file(source: Path, target: Path, size: int, digest: str | None, meter: Meter) -> None:
    """Verify `source` and give it the new name `target`; copy it where the system refuses. Errors as `copy_file`."""
    source = source.resolve()
    before = source.stat()
    if before.st_size != size:
        raise ApplyError(f"{source} is {before.st_size} bytes long and should be {size}")
    require(digest, digest_of(source, digest), str(source))
    try:
        target.hardlink_to(source)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        copy_file(source, target, size, digest, meter)
        return
    after = target.stat()
    if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
        raise ApplyError(f"{source} changed while it was read")
    meter(size, source.name)


def can_link(source: Path, folder: Path) -> bool:
    """Whether a hard link can lead from `folder` to `source`, as far as one can tell without making it."""
    try:
        return source.stat().st_dev == folder.stat().st_dev
    except OSError:
        return False
