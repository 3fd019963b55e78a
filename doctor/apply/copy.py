"""Copies that are verified while they are made, and the folder of links that stands for a read-only dataset."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from .errors import ApplyError

BLOCK = 4 << 20
MOST_MIRRORED = 500_000
# What the trainers open for writing inside a dataset folder: a link would lead the write to the read-only original.
REWRITTEN_FILES = frozenset({".aitk_size.json"})
REWRITTEN_FOLDERS = frozenset({"_latent_cache", "_t_e_cache", "_clip_vision_cache", "_controls"})
_FICLONE = 0x40049409

Progress = Callable[[int, int, str], None]


class Meter:
    """Adds up the bytes of a transaction and tells whoever watches."""

    def __init__(self, total: int, watcher: Progress | None) -> None:
        self.done = 0
        self.total = total
        self.watcher = watcher

    def __call__(self, count: int, name: str) -> None:
        self.done += count
        if self.watcher is not None:
            self.watcher(self.done, self.total, name)


def hasher(digest: str | None, size: int) -> Any:
    """The running hash for "sha256:…" or "git-sha1:…" (the hash git gives a file of `size` bytes); None for None."""
    if digest is None:
        return None
    kind, _, _ = digest.partition(":")
    if kind == "sha256":
        return hashlib.sha256()
    if kind == "git-sha1":
        return hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    raise ApplyError(f"The plan carries a checksum of an unknown kind: {digest}")


def require(digest: str | None, found: Any, what: str) -> None:
    """Raise ApplyError, naming the file, when the hash is not what it should be."""
    if digest is not None and found.hexdigest() != digest.partition(":")[2].lower():
        kind, _, expected = digest.partition(":")
        raise ApplyError(f"{what} is corrupt: its {kind} is {found.hexdigest()} and should be {expected}")


def copy_file(source: Path, target: Path, size: int | None, digest: str | None, meter: Meter, name: str = "") -> None:
    """Copy `source` to the new file `target` in one pass of read, hash and write; forced to disk.

    Where the file system shares blocks (btrfs, xfs) no data is written and the source is only read to be verified.
    Raises ApplyError when the size (bytes) or the digest differs; OSError as the system says it.
    """
    name = name or source.name
    with source.open("rb", buffering=0) as reader, target.open("xb", buffering=0) as writer:
        actual = os.fstat(reader.fileno()).st_size
        if size is not None and actual != size:
            raise ApplyError(f"{source} is {actual} bytes long and should be {size}")
        found = hasher(digest, actual)
        shared = reflink(reader.fileno(), writer.fileno())
        if shared and found is None:
            meter(actual, name)
        else:
            copied = _pump(reader, None if shared else writer, found, actual, lambda count: meter(count, name))
            if copied != actual:
                raise ApplyError(f"{source} changed while it was copied: {copied} bytes instead of {actual}")
        require(digest, found, str(source))
        os.fsync(writer.fileno())


def _pump(reader: IO[bytes], writer: IO[bytes] | None, found: Any, size: int, count: Callable[[int], None]) -> int:
    """Read to the end, writing and hashing each block. Blocks of big files are hashed while they are written."""
    from concurrent.futures import Future, ThreadPoolExecutor  # costs more than a check of the journal does

    buffers = (bytearray(BLOCK), bytearray(BLOCK)) if size > BLOCK else (bytearray(max(size, 1) + 1),) * 2
    total = 0
    hashing: Future[None] | None = None
    # hashlib releases the lock of the interpreter for large blocks, so one thread beside this one is enough.
    with ThreadPoolExecutor(1) as pool:
        turn = 0
        while True:
            read = reader.readinto(buffers[turn])  # type: ignore[attr-defined]
            if hashing is not None:
                hashing.result()
            if not read:
                return total
            block = memoryview(buffers[turn])[:read]
            if found is not None:
                if size > BLOCK:
                    hashing = pool.submit(found.update, block)
                else:
                    found.update(block)
            if writer is not None:
                _write_all(writer, block)
            total += read
            count(read)
            turn ^= 1


def _write_all(writer: IO[bytes], block: memoryview) -> None:
    while block:
        block = block[writer.write(block) :]


def reflink(source: int, target: int) -> bool:
    """Let an empty file share the blocks of another; False where the system or the file system cannot."""
    try:
        import fcntl
    except ImportError:
        return False
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        return False
    return True


def can_reflink(source: Path, folder: Path) -> bool:
    """Whether a copy of `source` in `folder` would share its blocks. Tried on a file without a name."""
    if not hasattr(os, "O_TMPFILE"):
        return False
    try:
        reader = os.open(source, os.O_RDONLY)
    except OSError:
        return False
    try:
        writer = os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600)
        try:
            return reflink(reader, writer)
        finally:
            os.close(writer)
    except OSError:
        return False
    finally:
        os.close(reader)


def digest_of(path: Path, digest: str | None) -> Any:
    """The hash of a whole file, of the kind that `digest` names."""
    with path.open("rb", buffering=0) as reader:
        size = os.fstat(reader.fileno()).st_size
        found = hasher(digest, size)
        if found is not None:
            _pump(reader, None, found, size, lambda _: None)
        return found


def mirrored(source: Path) -> Iterator[tuple[Path, str, str]]:
    """What a mirror of `source` holds: (path, name relative to it, "folder" | "link" | "copy"), parents first.

    Raises ApplyError for a folder with more than MOST_MIRRORED names, OSError where it cannot be read.
    """
    count = 0
    folders: list[tuple[Path, str]] = [(source, "")]
    while folders:
        folder, prefix = folders.pop()
        rewritten = any(part in REWRITTEN_FOLDERS for part in prefix.split("/"))
        with os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda e: e.name):
                count += 1
                if count > MOST_MIRRORED:
                    raise ApplyError(
                        f"{source} holds more than {MOST_MIRRORED} files; point the config at one dataset"
                    )
                path, name = Path(entry.path), f"{prefix}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    folders.append((path, f"{name}/"))
                    yield path, name, "folder"
                elif entry.is_file() and (rewritten or entry.name in REWRITTEN_FILES):
                    yield path, name, "copy"
                elif entry.is_symlink() or entry.is_file():
                    yield path, name, "link"


def mirror(source: Path, target: Path, meter: Meter) -> None:
    """Build the writable folder `target`: a link to every file below `source`, copies of what trainers rewrite.

    Where the system refuses symbolic links (Windows without developer mode), hard links; where those fail, copies.
    """
    target.mkdir()
    refused = False
    for path, name, kind in mirrored(source):
        place = target / name
        if kind == "folder":
            place.mkdir()
        elif kind == "copy":
            copy_file(path, place, None, None, meter, name)
        else:
            if not refused:
                try:
                    place.symlink_to(path, target_is_directory=path.is_dir())
                    continue
                except OSError as error:
                    if error.errno not in (errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
                        raise
                    refused = True
            _stand_in(path, place, meter, name)


def _stand_in(path: Path, place: Path, meter: Meter, name: str) -> None:
    try:
        place.hardlink_to(path)
    except OSError:
        if path.is_dir():
            shutil.copytree(path, place)
        else:
            copy_file(path, place, None, None, meter, name)
