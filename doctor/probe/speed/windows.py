"""Reading past the cache of Windows. Not run on Windows by its makers."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

if sys.platform == "win32":
    import ctypes
    from ctypes import wintypes

    from .readers import Read

    @contextmanager
    def unbuffered(file: str, buffer: memoryview) -> Iterator[Read]:
        """FILE_FLAG_NO_BUFFERING: offset, length and address are multiples of the sector, which a page is."""
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        kernel.CreateFileW.restype = wintypes.HANDLE
        # read; others may read, write and delete meanwhile; the file exists
        raw = kernel.CreateFileW(wintypes.LPCWSTR(file), 0x80000000, 7, None, 3, 0x20000000, None)
        if raw in (None, ctypes.c_void_p(-1).value):
            raise ctypes.WinError(ctypes.get_last_error())
        handle = wintypes.HANDLE(raw)
        address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))

        def read(offset: int, length: int) -> float | None:
            done = wintypes.DWORD()
            started = time.perf_counter()
            if not kernel.SetFilePointerEx(handle, ctypes.c_longlong(offset), None, 0):
                raise ctypes.WinError(ctypes.get_last_error())
            if not kernel.ReadFile(handle, ctypes.c_void_p(address), length, ctypes.byref(done), None):
                raise ctypes.WinError(ctypes.get_last_error())
            taken = time.perf_counter() - started
            return taken if done.value == length else None

        try:
            yield read
        finally:
            kernel.CloseHandle(handle)
