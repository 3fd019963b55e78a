"""Folders in well-known places on every local disk: where a second hub cache may lie.

The system's own table of mounts is read first, so that nothing is touched that could hang: no network mount, no FUSE
(except for a local disk), no automounter, no symbolic link.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import accumulate, islice

from .disk import MountLine, mount_of

# `fuseblk` is a local block device (NTFS); `overlay` the root of a container.
_DISKS = ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "bcachefs", "ntfs3", "ntfs", "exfat", "vfat")
LOCAL = frozenset((*_DISKS, "fuseblk", "overlay", "apfs", "hfs", "hfsplus"))
HABITUAL = ("/data", "/mnt", "/models", "/opt", "/scratch", "/srv", "/workspace")
OF_THE_SYSTEM = ("/boot", "/dev", "/proc", "/run", "/snap", "/sys", "/var")  # no person keeps models there
MOST = 32
Mounts = Sequence[MountLine]  # the deepest first


def folders_below(mounts: Mounts, places: Sequence[str]) -> Iterator[str]:
    """Those of `places` ("hf/hub") that are folders below the root of a local disk. Looks at 32 roots at most."""
    kinds = {line.point: line.filesystem for line in reversed(mounts)}

    @cache
    def is_local(path: str) -> bool:
        return (path not in kinds or kinds[path] in LOCAL) and _is_folder(path)

    for root in dict.fromkeys(islice(_roots(mounts), MOST)):
        for place in places:
            way = list(accumulate(place.split("/"), os.path.join, initial=root))
            if all(map(is_local, way[1:])):
                yield way[-1]


def _roots(mounts: Mounts) -> Iterator[str]:
    try:
        if sys.platform == "win32":
            yield from _drives()
        elif sys.platform == "darwin":
            volumes = [line.point for line in mounts if line.filesystem in LOCAL]
            yield from (point for point in volumes if point == "/" or point.startswith("/Volumes/"))
        else:
            yield from _linux(mounts)
    except (OSError, AttributeError, ImportError):
        return


def _linux(mounts: Mounts) -> Iterator[str]:
    points = [line.point for line in reversed(mounts) if line.filesystem in LOCAL]
    yield from (point for point in points if not _below(point, OF_THE_SYSTEM) or point.startswith("/run/media/"))
    paths = [*HABITUAL]
    if _is_local("/mnt", mounts):  # folders that are no mounts; what is mounted there is in the table
        with os.scandir("/mnt") as entries:
            paths += sorted(entry.path for entry in islice(entries, MOST))
    yield from (path for path in paths if _is_local(path, mounts) and _is_folder(path))


def _is_local(path: str, mounts: Mounts) -> bool:
    line = mount_of(path, mounts)
    return line is not None and line.filesystem in LOCAL


def _below(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def _is_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return False


def _drives() -> Iterator[str]:
    """Drive letters of fixed disks (GetDriveTypeW 3: a network drive is 4, one without a medium 2 or 5)."""
    import ctypes

    kernel = ctypes.windll.kernel32  # type: ignore[attr-defined,unused-ignore]
    letters = kernel.GetLogicalDrives()
    for number in range(26):
        root = f"{chr(ord('A') + number)}:\\"
        if letters >> number & 1 and kernel.GetDriveTypeW(root) == 3:
            yield root
