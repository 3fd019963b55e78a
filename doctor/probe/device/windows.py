"""Windows: the drive letter, the disks below it, and files that are only placeholders of a cloud.

Not run on Windows by its makers: the decoding is tested on structures laid out as in winioctl.h and ntddstor.h.
"""

from __future__ import annotations

import os
import struct
import sys

from . import Device, together

READ_ONLY = 0x1  # FILE_ATTRIBUTE_READONLY; of a folder it only says that Explorer shows it in a special way
WRITE_PROTECT = 19  # ERROR_WRITE_PROTECT
RECALL = 0x1000 | 0x40000 | 0x400000  # FILE_ATTRIBUTE_OFFLINE, _RECALL_ON_OPEN, _RECALL_ON_DATA_ACCESS
PLACEHOLDER = "a cloud placeholder: reading it would download it"
_DRIVES = {2: "removable drive", 4: "mapped drive", 5: "optical disc", 6: "ramdisk"}
_BUSES = {3: "ATA", 7: "USB", 8: "RAID", 9: "iSCSI", 10: "SAS", 11: "SATA", 12: "SD", 17: "NVMe", 19: "UFS"}
_REMOTE, _VIRTUAL, _SPACES = (9,), (14, 15), 16
_EXTENTS, _QUERY = 0x00560000, 0x002D1400  # IOCTL_VOLUME_GET_VOLUME_DISK_EXTENTS, IOCTL_STORAGE_QUERY_PROPERTY
_DEVICE_PROPERTY, _SEEK_PENALTY = 0, 7


def is_placeholder(state: os.stat_result) -> bool:
    """Whether the content of a file lies in a cloud (OneDrive): whoever reads it downloads it."""
    return bool(getattr(state, "st_file_attributes", 0) & RECALL)


def is_marked_read_only(state: os.stat_result) -> bool:
    """Whether Explorer's read-only mark is set."""
    return bool(getattr(state, "st_file_attributes", 0) & READ_ONLY)


def read_extents(data: bytes) -> list[int]:
    """The numbers of the disks in a VOLUME_DISK_EXTENTS structure."""
    if len(data) < 8:
        return []
    (count,) = struct.unpack_from("<I", data)
    return [struct.unpack_from("<I", data, 8 + 24 * i)[0] for i in range(count) if 8 + 24 * (i + 1) <= len(data)]


def read_seek_penalty(data: bytes) -> bool | None:
    """IncursSeekPenalty of a DEVICE_SEEK_PENALTY_DESCRIPTOR."""
    return bool(data[8]) if len(data) >= 9 else None


def read_bus(data: bytes) -> int | None:
    """BusType of a STORAGE_DEVICE_DESCRIPTOR."""
    return int(struct.unpack_from("<I", data, 28)[0]) if len(data) >= 32 else None


def disk(number: int, bus: int | None, seeks: bool | None) -> tuple[str, str, Device]:
    """(name, bus, Device) of a physical drive."""
    name = f"disk {number}"
    words = "virtual disk" if bus in _VIRTUAL else "Storage Spaces" if bus == _SPACES else _BUSES.get(bus or 0, "")
    return name, words, Device(name, seeks, remote=bus in _REMOTE, virtual=bus in _VIRTUAL)


if sys.platform == "win32":
    import ctypes
    from ctypes import wintypes

    def _open(name: str) -> int:
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        kernel.CreateFileW.restype = wintypes.HANDLE
        # no access rights are asked for: the queries below need none
        handle = kernel.CreateFileW(wintypes.LPCWSTR(name), 0, 7, None, 3, 0, None)
        if handle in (None, ctypes.c_void_p(-1).value):
            raise ctypes.WinError(ctypes.get_last_error())
        return int(handle)

    def _ask(name: str, code: int, question: bytes = b"") -> bytes:
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        handle = wintypes.HANDLE(_open(name))
        try:
            answer, size = ctypes.create_string_buffer(4096), wintypes.DWORD()
            given = ctypes.create_string_buffer(question, len(question)) if question else None
            if not kernel.DeviceIoControl(
                handle, code, given, len(question), answer, len(answer), ctypes.byref(size), None
            ):
                raise ctypes.WinError(ctypes.get_last_error())
            return answer.raw[: size.value]
        finally:
            kernel.CloseHandle(handle)

    def open_for_new_files(folder: str) -> None:
        """Open a folder with the right to make files in it, and close it. Raises OSError as the system refuses it."""
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        kernel.CreateFileW.restype = wintypes.HANDLE
        # FILE_ADD_FILE; others may do as they like; the folder exists; FILE_FLAG_BACKUP_SEMANTICS, which folders need
        handle = kernel.CreateFileW(wintypes.LPCWSTR(folder), 2, 7, None, 3, 0x02000000, None)
        if handle in (None, ctypes.c_void_p(-1).value):
            raise ctypes.WinError(ctypes.get_last_error())
        kernel.CloseHandle(wintypes.HANDLE(handle))

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

    def device_of(anchor: str) -> Device | None:
        """The disks below a drive ("C:\\"), None where they cannot be asked."""
        try:
            numbers = read_extents(_ask(f"\\\\.\\{anchor[:2]}", _EXTENTS))
            found = []
            for number in numbers:
                drive = f"\\\\.\\PhysicalDrive{number}"
                bus = read_bus(_ask(drive, _QUERY, struct.pack("<III", _DEVICE_PROPERTY, 0, 0)))
                try:
                    seeks = read_seek_penalty(_ask(drive, _QUERY, struct.pack("<III", _SEEK_PENALTY, 0, 0)))
                except OSError:  # RAID controllers, virtual disks
                    seeks = None
                found.append(disk(number, bus, seeks))
            return together(found)
        except OSError:
            return None
