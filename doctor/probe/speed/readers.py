"""Three ways to read a range of a file and to say how long it took, or that memory answered."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Seconds for (offset, length); None when the range lay in memory, or when that cannot be told.
Read = Callable[[int, int], float | None]
REFUSALS = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS)


class Hole(Exception):
    """Nothing is stored at this place of a sparse file, nor behind it: no disk would be asked."""


class NoWay(Exception):
    """This file system, or this system, cannot keep memory out of it in this way."""


@contextmanager
def direct(file: str, buffer: memoryview) -> Iterator[Read]:
    """Past the page cache: O_DIRECT, and FILE_FLAG_NO_BUFFERING on Windows. Offsets and lengths are whole blocks."""
    if sys.platform == "win32":
        from .windows import unbuffered

        with unbuffered(file, buffer) as read:
            yield read
        return
    flag = getattr(os, "O_DIRECT", None)
    if flag is None:
        raise NoWay
    try:
        handle = os.open(file, os.O_RDONLY | flag)
    except OSError as error:
        if error.errno in REFUSALS:
            raise NoWay from None
        raise
    try:
        yield lambda offset, length: _timed(handle, buffer[:length], stored(handle, offset, length), refused=NoWay)
    finally:
        os.close(handle)


@contextmanager
def not_in_memory(file: str, buffer: memoryview) -> Iterator[Read]:
    """Only ranges of which the page cache holds nothing. What was read is given back, so that all is as before."""
    if sys.platform == "win32":
        raise NoWay
    from .residency import held

    handle = os.open(file, os.O_RDONLY)
    may_write = os.access(file, os.W_OK)
    if sys.platform == "darwin":
        import fcntl

        fcntl.fcntl(handle, fcntl.F_NOCACHE, 1)

    def read(offset: int, length: int) -> float | None:
        offset = stored(handle, offset, length)
        before = held(handle, offset, length, may_write)
        if before is None:
            raise NoWay
        if before:
            return None
        if sys.platform == "linux":
            advice = os.POSIX_FADV_RANDOM if length <= 4096 else os.POSIX_FADV_NORMAL
            os.posix_fadvise(handle, 0, 0, advice)
        taken = _timed(handle, buffer[:length], offset)
        if sys.platform == "linux":
            # Where the pages do not show up after the read, they would not have shown up before it either
            # (an overlay asked by cachestat, ZFS): then memory may have answered.
            if not held(handle, offset, length, may_write):
                raise NoWay
            os.posix_fadvise(handle, offset, length, os.POSIX_FADV_DONTNEED)
        return taken

    try:
        yield read
    finally:
        os.close(handle)


@contextmanager
def buffered(file: str, buffer: memoryview) -> Iterator[Read]:
    """As any program reads: for files that lie in memory anyway."""
    handle = os.open(file, os.O_RDONLY)
    try:
        yield lambda offset, length: _timed(handle, buffer[:length], offset)
    finally:
        os.close(handle)


def stored(handle: int, offset: int, length: int) -> int:
    """`offset`, or the next place of `length` bytes without a hole in them. Raises Hole where there is none."""
    seek_data, seek_hole = getattr(os, "SEEK_DATA", None), getattr(os, "SEEK_HOLE", None)
    if seek_data is None or seek_hole is None:
        return offset
    try:
        for _ in range(64):
            start = -(-os.lseek(handle, offset, seek_data) // 4096) * 4096
            offset = os.lseek(handle, start, seek_hole)
            if offset - start >= length:
                return start
    except OSError as error:
        if error.errno in REFUSALS:  # a file system that does not tell
            return offset
    raise Hole


def _timed(handle: int, into: memoryview, offset: int, refused: type[Exception] = OSError) -> float | None:
    if sys.platform == "win32":  # where `direct` reads in its own way
        raise NoWay
    started = time.perf_counter()
    try:
        read = os.preadv(handle, [into], offset)
    except OSError as error:
        if error.errno in REFUSALS and refused is NoWay:
            raise NoWay from None
        raise
    taken = time.perf_counter() - started
    return taken if read == len(into) else None
