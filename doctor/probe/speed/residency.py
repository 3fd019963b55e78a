"""How much of a file the page cache holds: mincore(2), and cachestat(2) where mincore may not say."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache

CACHESTAT = 451  # the same number on every architecture; Linux 6.5


def held(handle: int, offset: int, length: int, may_write: bool) -> int | None:
    """Pages of a range that lie in memory; None when the system does not say.

    Since Linux 5.2 mincore calls everything resident that the caller neither owns nor may write; cachestat answers
    then (up to 6.12), but sees nothing on an overlay.
    """
    state = os.fstat(handle)
    if sys.platform != "linux" or may_write or os.geteuid() in (0, state.st_uid):
        return _mincore(handle, offset, length)
    return _cachestat(handle, offset, length)


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    libc.syscall.restype = ctypes.c_long
    return libc


def _mincore(handle: int, offset: int, length: int) -> int | None:
    """Mapping a file reads nothing of it."""
    if sys.platform == "win32":
        return None
    libc, page = _libc(), os.sysconf("SC_PAGESIZE")
    start = offset // page * page
    length += offset - start
    address = libc.mmap(None, length, 1, 1, handle, start)  # PROT_READ, MAP_SHARED
    if address in (None, ctypes.c_void_p(-1).value):
        return None
    try:
        pages = ctypes.create_string_buffer(-(-length // page))
        if libc.mincore(address, length, pages) != 0:
            return None
        return sum(byte & 1 for byte in pages.raw)
    finally:
        libc.munmap(address, length)


def _cachestat(handle: int, offset: int, length: int) -> int | None:
    asked = (ctypes.c_uint64 * 2)(offset, length)
    told = (ctypes.c_uint64 * 5)()  # in the cache, dirty, being written, evicted, recently evicted
    answer = _libc().syscall(
        ctypes.c_long(CACHESTAT), ctypes.c_uint(handle), ctypes.byref(asked), ctypes.byref(told), ctypes.c_uint(0)
    )
    return int(told[0]) if answer == 0 else None
