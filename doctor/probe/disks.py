"""The disks of this machine: what a path lies on, by the table of mounts and sysfs, and where a hub cache may lie.

What sysfs says is only a hint: measurement overrules it. The table of mounts is read before any folder is looked at,
so that nothing is touched that could hang: no network mount, no FUSE (except for a local disk), no automounter, no
symbolic link. Layouts: Documentation/filesystems/proc.rst (mountinfo), Documentation/ABI/stable/sysfs-block.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import accumulate, islice

from ..model.record import dataclass

MOST_LAYERS = 8
_VIRTUAL = re.compile(r"/virtio\d|/vmbus|VMBUS|/vbd-")  # in the device's place in sysfs
_VIRTUAL_VENDORS = ("VMware", "QEMU", "VBOX", "Msft", "Google", "Amazon")


@dataclass(frozen=True)
class Device:
    """One disk, or several that a volume is spread over ("sda + sdb").

    `seeks` is what the system says of moving heads, None when it says nothing. Of a disk that is `virtual`, which a
    host with caches of its own stands behind, that is made up. `image`: a file that is read through memory.
    """

    name: str
    seeks: bool | None = None
    virtual: bool = False
    image: bool = False


@dataclass(frozen=True)
class MountLine:
    """One line of /proc/self/mountinfo."""

    point: str
    filesystem: str
    source: str = ""
    options: str = ""


def read_mounts(text: str) -> tuple[MountLine, ...]:
    """The lines of a mountinfo text, the deepest mount points first, among equal ones the newest."""
    found: list[MountLine] = []
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        fields, kinds = [unescape(part) for part in left.split()], [unescape(part) for part in right.split()]
        if len(fields) > 4 and len(kinds) > 1:
            found.append(MountLine(fields[4], kinds[0], kinds[1], kinds[2] if len(kinds) > 2 else ""))
    found.reverse()
    return tuple(sorted(found, key=lambda mount: -len(mount.point)))


def unescape(text: str) -> str:
    """Undo the octal escapes of mountinfo."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


def mount_of(path: str, mounts: Sequence[MountLine]) -> MountLine | None:
    """The mount that holds an absolute path without links."""
    return next((m for m in mounts if path == m.point or path.startswith(m.point.rstrip("/") + "/")), None)


def device_of(path: str, mounts: Sequence[MountLine]) -> Device | None:
    """What a path without links lies on; None where that cannot be told (an overlay, ZFS, another system)."""
    if sys.platform == "win32":
        return None
    try:
        number, mount = os.stat(path).st_dev, mount_of(path, mounts)
        if not os.major(number) and mount is not None and mount.source.startswith("/dev/"):
            number = os.stat(mount.source).st_rdev  # btrfs: the numbers of its files are no disk's
    except OSError:
        return None
    return device_in(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}") if os.major(number) else None


def device_in(place: str) -> Device | None:
    """The device of a place in sysfs, None where there is none."""
    folder = os.path.realpath(place)
    if not os.path.isdir(folder):
        return None
    disks = _disks(folder, MOST_LAYERS)
    flags = [_text(f"{disk}/queue/rotational") for disk in disks]
    virtual = any(
        _VIRTUAL.search(disk) or _text(f"{disk}/device/vendor").startswith(_VIRTUAL_VENDORS) for disk in disks
    )
    names = dict.fromkeys(map(os.path.basename, disks))
    image = any(_text(f"{disk}/loop/dio") == "0" for disk in disks)
    return Device(" + ".join(names), "1" in flags if any(flags) else None, virtual, image)


def _disks(folder: str, layers: int) -> list[str]:
    """The disks below a block device: a partition's disk, the members of a RAID, what an encrypted volume lies on."""
    if os.path.exists(f"{folder}/partition"):
        folder = os.path.dirname(folder)
    slaves = sorted(os.listdir(f"{folder}/slaves")) if os.path.isdir(f"{folder}/slaves") else []
    if not slaves or layers <= 0:
        return [folder]
    return [disk for name in slaves for disk in _disks(os.path.realpath(f"{folder}/slaves/{name}"), layers - 1)]


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(4096).strip()
    except OSError:
        return ""


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
