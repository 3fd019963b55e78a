"""Copies that are verified while they are made, and second names in place of copies."""

from __future__ import annotations

import errno
import mmap
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from ...files import fingerprints
from ...probe.live import STEADY_FILESYSTEMS, LiveWorld
from ...probe.world import Mount
from ...state.receipts import Key, Receipts
from .errors import ApplyError

BLOCK = 4 << 20
_FICLONE = 0x40049409
# another file system, one that has no hard links, one that has no room for another name, a protected file
_NO_LINKS = (errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)

Progress = Callable[[int, int, str], None]


class Meter:
    """Adds up the bytes of a transaction and tells whoever watches."""

    def __init__(self, total: int, watcher: Progress | None) -> None:
        self.done = 0
        self.adopted = 0  # bytes that an earlier run had finished
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
    kind = digest.partition(":")[0]
    if kind not in ("sha256", "git-sha1"):
        raise ApplyError(f"The plan carries a checksum of an unknown kind: {digest}")
    return fingerprints.running(kind, size)


def require(digest: str | None, found: Any, what: str) -> None:
    """Raise ApplyError, naming the file, when the hash is not what it should be."""
    if digest is not None and found.hexdigest() != digest.partition(":")[2].lower():
        kind, _, expected = digest.partition(":")
        raise ApplyError(f"{what} is corrupt: its {kind} is {found.hexdigest()} and should be {expected}")


def copy_file(
    source: Path,
    target: Path,
    size: int | None,
    digest: str | None,
    meter: Meter,
    name: str = "",
    receipts: Receipts | None = None,
) -> None:
    """Copy `source` to the new file `target` in one pass of read, hash and write; forced to disk.

    Where the file system shares blocks (btrfs, xfs) no data is written, and the source is only read to be verified:
    not even that when one of `receipts` says what it holds. Raises ApplyError when the size (bytes) or the digest
    differs or the source changes meanwhile; OSError as the system says it.
    """
    name = name or source.name
    with source.open("rb", buffering=0) as reader, target.open("xb", buffering=0) as writer:
        before = os.fstat(reader.fileno())
        actual = before.st_size
        if size is not None and actual != size:
            raise ApplyError(f"{source} is {actual} bytes long and should be {size}")
        found = hasher(digest, actual)
        key, kind = Key.of(before), (digest or "").partition(":")[0]
        shared = reflink(reader.fileno(), writer.fileno())
        known = receipts is not None and digest is not None and receipts.recall(key, kind) == digest
        if shared and (digest is None or (known and Key.of(os.fstat(reader.fileno())) == key)):
            meter(actual, name)
        else:
            started = time.time_ns()
            if not shared and actual > BLOCK and is_steady(target):
                _past_the_cache(writer, True)
            copied = _pump(reader, None if shared else writer, found, actual, lambda count: meter(count, name))
            if copied != actual:
                raise ApplyError(f"{source} changed while it was copied: it was {actual} bytes long")
            require(digest, found, str(source))
            if receipts is not None and digest is not None:
                receipts.note(key, kind, digest, started)
        after = os.fstat(reader.fileno())
        if (after.st_size, after.st_mtime_ns) != (actual, before.st_mtime_ns):
            raise ApplyError(f"{source} changed while it was copied")
        os.fsync(writer.fileno())


def _pump(reader: IO[bytes], writer: IO[bytes] | None, found: Any, size: int, count: Callable[[int], None]) -> int:
    """Read to the end, but not far beyond `size`; each block is hashed and written while the next one is read."""
    if size <= BLOCK:
        buffer, total = memoryview(bytearray(size + 1)), 0
        while total <= size and (read := reader.readinto(buffer[total:])):  # type: ignore[attr-defined]
            total += read
        if found is not None:
            found.update(buffer[:total])
        if writer is not None:
            _write_all(writer, buffer[:total])
        count(total)
        return total
    from concurrent.futures import Future, ThreadPoolExecutor  # costs more than a check of the journal does

    # Page-aligned: the kernel copies faster to such memory, and may write from it without a copy.
    buffers = [memoryview(mmap.mmap(-1, BLOCK)) for _ in range(2)]
    total = turn = 0
    working: list[Future[None]] = []
    # hashlib and the system calls release the lock of the interpreter.
    with ThreadPoolExecutor(2) as pool:
        while total <= size:
            read = reader.readinto(buffers[turn])  # type: ignore[attr-defined]
            for work in working:
                work.result()
            if not read:
                break
            block = buffers[turn][:read]
            working = [] if found is None else [pool.submit(found.update, block)]
            if writer is not None:
                working.append(pool.submit(_write_all, writer, block))
            total += read
            count(read)
            turn ^= 1
        for work in working:
            work.result()
    return total


def is_steady(path: Path) -> bool:
    """Whether it lies on a local file system of Linux: inode and times say when a file changes."""
    mount = LiveWorld().mount(str(path))
    return isinstance(mount, Mount) and mount.filesystem in STEADY_FILESYSTEMS


def _past_the_cache(writer: IO[bytes], wanted: bool) -> bool:
    """Let what is written go to the disk by itself (O_DIRECT), which saves a copy in memory and does not push out of
    it what others cached; or no longer. Returns whether that changed anything: not every file system can."""
    if sys.platform != "linux":
        return False
    import fcntl

    try:
        flags = fcntl.fcntl(writer, fcntl.F_GETFL)
        if bool(flags & os.O_DIRECT) != wanted:
            fcntl.fcntl(writer, fcntl.F_SETFL, flags ^ os.O_DIRECT)
            return True
    except OSError:
        pass
    return False


def _write_all(writer: IO[bytes], block: memoryview) -> None:
    if len(block) % mmap.PAGESIZE:  # the end of the file
        _past_the_cache(writer, False)
    while block:
        try:
            block = block[writer.write(block) :]
        except OSError as error:
            if error.errno != errno.EINVAL or not _past_the_cache(writer, False):
                raise


def reflink(source: int, target: int) -> bool:
    """Let an empty file share the blocks of another; False where the system or the file system cannot."""
    if sys.platform != "linux":
        return False
    import fcntl

    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        return False
    return True


def can_reflink(source: Path, folder: Path) -> bool:
    """Whether a copy of `source` in `folder` would share its blocks. Tried on a file without a name."""
    if sys.platform != "linux":
        return False
    try:
        reader = os.open(source, os.O_RDONLY | os.O_NONBLOCK)  # a pipe in its place would never open
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
