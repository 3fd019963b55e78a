"""What is asked of Windows itself: the kind of a drive, files that are placeholders of a cloud, reads past the cache.

Not run on Windows by its makers.
"""

from __future__ import annotations

import os
import sys
import time

READ_ONLY = 0x1  # FILE_ATTRIBUTE_READONLY; of a folder it only says that Explorer shows it in a special way
WRITE_PROTECT = 19  # ERROR_WRITE_PROTECT
RECALL = 0x1000 | 0x40000 | 0x400000  # FILE_ATTRIBUTE_OFFLINE, _RECALL_ON_OPEN, _RECALL_ON_DATA_ACCESS
PLACEHOLDER = "a cloud placeholder: reading it would download it"
_DRIVES = {2: "removable drive", 4: "mapped drive", 5: "optical disc", 6: "ramdisk"}


def is_placeholder(state: os.stat_result) -> bool:
    """Whether the content of a file lies in a cloud (OneDrive): whoever reads it downloads it."""
    return bool(getattr(state, "st_file_attributes", 0) & RECALL)


def is_marked_read_only(state: os.stat_result) -> bool:
    """Whether Explorer's read-only mark is set."""
    return bool(getattr(state, "st_file_attributes", 0) & READ_ONLY)


if sys.platform == "win32":
    import ctypes
    from ctypes import wintypes

    def _open(name: str, access: int, flags: int) -> wintypes.HANDLE:
        """Open what exists; others may read, write and delete meanwhile. Raises OSError as the system refuses it."""
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        kernel.CreateFileW.restype = wintypes.HANDLE
        handle = kernel.CreateFileW(wintypes.LPCWSTR(name), access, 7, None, 3, flags, None)
        if handle in (None, ctypes.c_void_p(-1).value):
            raise ctypes.WinError(ctypes.get_last_error())
        return wintypes.HANDLE(handle)

    def open_for_new_files(folder: str) -> None:
        """Open a folder with the right to make files in it, and close it. Raises OSError as the system refuses it."""
        # FILE_ADD_FILE; FILE_FLAG_BACKUP_SEMANTICS, which folders need
        ctypes.WinDLL("kernel32").CloseHandle(_open(folder, 2, 0x02000000))

    def read_unbuffered(file: str, into: memoryview, offset: int) -> float | None:
        """Seconds of a read with FILE_FLAG_NO_BUFFERING: offset, length and address are whole sectors."""
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        handle = _open(file, 0x80000000, 0x20000000)
        try:
            done, address = wintypes.DWORD(), ctypes.addressof(ctypes.c_char.from_buffer(into))
            started = time.perf_counter()
            if not kernel.SetFilePointerEx(handle, ctypes.c_longlong(offset), None, 0) or not kernel.ReadFile(
                handle, ctypes.c_void_p(address), len(into), ctypes.byref(done), None
            ):
                raise ctypes.WinError(ctypes.get_last_error())
            taken = time.perf_counter() - started
            return taken if done.value == len(into) else None
        finally:
            kernel.CloseHandle(handle)

    def filesystem_of(anchor: str) -> str:
        """ "NTFS", "mapped drive", "ramdisk"; "unknown" where Windows does not say."""
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        if anchor.startswith("\\\\"):
            return _DRIVES[4]
        kind = kernel.GetDriveTypeW(wintypes.LPCWSTR(anchor))
        if kind in (4, 6):
            return _DRIVES[kind]
        name = ctypes.create_unicode_buffer(64)
        told = kernel.GetVolumeInformationW(wintypes.LPCWSTR(anchor), None, 0, None, None, None, name, len(name))
        return name.value if told and name.value else _DRIVES.get(kind, "unknown")
