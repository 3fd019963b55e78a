"""An action: the bytes of an existing file are replaced."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import sys
from contextlib import suppress
from itertools import takewhile
from operator import eq
from pathlib import Path

from ...files.durable import replace, sync_folder
from ...files.fingerprints import of_bytes
from .build import ensure_folder
from .journal import Journal, Record
from .paths import aside, hub_root, lies

# A file that was mounted by itself (Docker), a folder that may not be written to: only writing in place is left.
_NOT_BY_RENAMING = (errno.EBUSY, errno.EACCES, errno.EPERM, errno.EROFS, errno.EXDEV)

LARGEST_TEXT = 16 << 20


def is_text_sized(path: Path) -> bool:
    """Whether a regular file is there, links followed, that is small enough to keep a copy of."""
    return path.is_file() and path.stat().st_size <= LARGEST_TEXT


def edit(journal: Journal, path: Path, data: bytes) -> None:
    """Replace the contents of a file; its mode, and its owner where we may, stay. A link's target is edited."""
    path = path.resolve()
    before = path.read_bytes()
    if before == data:
        return
    info = path.stat()
    temporary = aside(path, journal.id, "part")
    if hub_root(path) is not None:
        ensure_folder(journal, temporary.parent)
    n = len(journal.actions)
    journal.keep(f"{n}.before", before)
    journal.keep(f"{n}.after", data)
    journal.begin(
        "edit",
        path=str(path),
        temporary=str(temporary),
        mode=stat.S_IMODE(info.st_mode),
        mtime_ns=info.st_mtime_ns,
        before=of_bytes(before),
        after=of_bytes(data),
    )
    _rewrite(journal, n, path, temporary, data)


def _rewrite(journal: Journal, n: int, path: Path, temporary: Path, data: bytes) -> None:
    info = path.stat()
    if info.st_nlink == 1:
        try:
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                _take_after(file.fileno(), path, temporary, info)
                os.fsync(file.fileno())
            replace(temporary, path)
            sync_folder(path.parent)
            return
        except OSError as error:
            if error.errno not in _NOT_BY_RENAMING:
                raise
            if lies(temporary):
                temporary.unlink()
    journal.log({"do": "in-place", "n": n})
    with path.open("r+b") as file:
        file.write(data)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


def _take_after(descriptor: int, path: Path, temporary: Path, info: os.stat_result) -> None:
    """Give the temporary file the owner, mode and extended attributes of the file it will replace."""
    if sys.platform != "win32" and (info.st_uid, info.st_gid) != (os.geteuid(), os.getegid()):
        os.fchown(descriptor, info.st_uid, info.st_gid)
    shutil.copystat(path, temporary)
    os.utime(temporary)


def revert_edit(journal: Journal, record: Record) -> str | None:
    path, temporary = Path(record["path"]), Path(record["temporary"])
    if lies(temporary):
        temporary.unlink()
    objection = edited_since(journal, record)
    if objection is not None:
        return objection
    before = journal.kept(f"{record['n']}.before")
    if path.read_bytes() != before:
        temporary.parent.mkdir(parents=True, exist_ok=True)
        _rewrite(journal, record["n"], path, temporary, before)
    info = path.stat()
    # Only its owner may set the times of a file; for anyone else, who may write to it, the contents are what counts.
    with suppress(PermissionError):
        if stat.S_IMODE(info.st_mode) != record["mode"]:
            path.chmod(record["mode"])
        if info.st_mtime_ns != record["mtime_ns"]:
            os.utime(path, ns=(info.st_atime_ns, record["mtime_ns"]))
    return None


def edited_since(journal: Journal, record: Record) -> str | None:
    """Why the former contents of a file may not be put back: someone else has written to it, or it is gone."""
    path = Path(record["path"])
    kept = f"its former contents are in {journal.folder / str(record['n'])}.before"
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return f"{path} is gone; {kept}"
    if of_bytes(data) in (record["before"], record["after"]):
        return None
    if journal.said("in-place", record["n"]) and _half_written(journal, record["n"], data):
        return None
    return f"{path} was edited since; {kept}"


def _half_written(journal: Journal, n: int, data: bytes) -> bool:
    """Whether `data` is what a kill leaves while one version is written over the other: a head and a tail."""
    before, after = journal.kept(f"{n}.before"), journal.kept(f"{n}.after")
    for old, new in ((before, after), (after, before)):
        done = sum(takewhile(bool, map(eq, data, new)))
        if data[done:] == old[done:]:
            return True
    return False
