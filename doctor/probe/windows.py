"""What is asked of Windows itself: the kind of a drive, files that are placeholders of a cloud, reads past the cache.

Not run on Windows by its makers.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping

from ..model import Host

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


def grows(paging_files: object) -> bool:
    """Whether Windows itself may make a page file larger: by the registry's PagingFiles, "C:\\pagefile.sys 0 0".

    The numbers are its sizes in MiB at first and at most; 0, none, or a drive named ? leave them to Windows.
    """
    lines = paging_files if isinstance(paging_files, list) else None
    if lines is None:
        return True
    sizes = [str(line).split()[-2:] for line in lines if str(line).strip()]
    return any(len(size) < 2 or not size[0].isdecimal() or size[0] != size[1] or size[1] == "0" for size in sizes)


def synced(variables: Mapping[str, str]) -> tuple[str, ...]:
    """The folders that OneDrive keeps in its cloud, as it names them itself."""
    names = ("OneDrive", "OneDriveConsumer", "OneDriveCommercial")
    return tuple(dict.fromkeys(variables[name] for name in names if variables.get(name)))


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

    def limits(variables: Mapping[str, str]) -> Host:
        """Long paths and page files as the registry names them, what can still be promised, folders of OneDrive."""
        state = _MemoryStatus()
        state.dwLength = ctypes.sizeof(state)
        known = ctypes.WinDLL("kernel32", use_last_error=True).GlobalMemoryStatusEx(ctypes.byref(state))
        manager = r"SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management"
        fixed = known and not grows(_registry(manager, "PagingFiles"))
        long_paths = _registry(r"SYSTEM\CurrentControlSet\Control\FileSystem", "LongPathsEnabled")
        return Host(
            commit_limit=int(state.ullTotalPageFile) if fixed else None,
            commit_free=int(state.ullAvailPageFile) if fixed else None,
            long_paths=None if long_paths is None else bool(long_paths),
            synced=synced(variables),
        )

    class _MemoryStatus(ctypes.Structure):
        """MEMORYSTATUSEX."""

        _fields_ = (
            ("dwLength", wintypes.DWORD),
            ("dwMemoryLoad", wintypes.DWORD),
            *((name, ctypes.c_ulonglong) for name in ("ullTotalPhys", "ullAvailPhys", "ullTotalPageFile")),
            *((name, ctypes.c_ulonglong) for name in ("ullAvailPageFile", "ullTotalVirtual", "ullAvailVirtual")),
            ("ullAvailExtendedVirtual", ctypes.c_ulonglong),
        )

    def _registry(key: str, name: str) -> object:
        """A value of the machine's registry, None where it is not there."""
        import winreg

        try:
            with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, key) as opened:
                return winreg.QueryValueEx(opened, name)[0]
        except OSError:
            return None
