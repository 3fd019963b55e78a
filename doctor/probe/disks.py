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

from ..model.record import dataclass, replace

MOST_LAYERS = 8
# (what the device's place in sysfs contains, the bus in words, remote, virtual); the first that fits
_BUSES = (
    (r"/nvme-fabrics/", "NVMe over a network", True, False),
    (r"/nvme", "NVMe", False, False),
    (r"/(nbd|rbd|drbd)\d", "network block device", True, False),
    (r"/session\d", "iSCSI", True, False),
    (r"/usb\d", "USB", False, False),
    (r"/mmc_host/", "SD or eMMC", False, False),
    (r"/ata\d", "SATA", False, False),
    (r"/virtio\d|/vmbus|VMBUS|/vbd-", "virtual disk", False, True),
)
_VIRTUAL_VENDORS = ("VMware", "QEMU", "VBOX", "Msft", "Google", "Amazon")


@dataclass(frozen=True)
class Device:
    """One disk, or several that a volume is spread over.

    `seeks` is what the system says of moving heads, None when it says nothing; virtual disks on flash are often said
    to have them. `remote` when it is reached over a network, `memory` when it is RAM, `virtual` when a host with
    caches of its own stands behind it. `image` is the file behind a loop device that reads it through memory.
    """

    name: str
    bus: str = ""
    seeks: bool | None = None
    remote: bool = False
    memory: bool = False
    virtual: bool = False
    image: str | None = None

    @property
    def words(self) -> str:
        """ "nvme0n1, NVMe"."""
        return ", ".join(filter(None, (self.name, self.bus)))


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


def device_of(path: str, mounts: Sequence[MountLine], layers: int = MOST_LAYERS) -> Device | None:
    """What a path without links lies on; None where that cannot be told (an overlay, ZFS, another system)."""
    if sys.platform == "win32" or layers <= 0:
        return None
    try:
        number, mount = os.stat(path).st_dev, mount_of(path, mounts)
        if not os.major(number) and mount is not None and mount.source.startswith("/dev/"):
            number = os.stat(mount.source).st_rdev  # btrfs: the numbers of its files are no disk's
    except OSError:
        return None
    return _of_number(f"{os.major(number)}:{os.minor(number)}", mounts, "/sys", layers) if os.major(number) else None


def _of_number(number: str, mounts: Sequence[MountLine], sysfs: str, layers: int) -> Device | None:
    folder = os.path.realpath(f"{sysfs}/dev/block/{number}")
    if not os.path.isdir(folder):
        return None
    found = [_of_disk(disk, mounts, layers) for disk in _disks(folder, layers)]
    known = [device for device in found if device is not None]
    if not known or len(known) < len(found):
        return None
    told = [device.seeks for device in known if device.seeks is not None]
    return Device(  # a volume is as slow as the slowest disk below it
        " + ".join(dict.fromkeys(device.name for device in known)),
        " + ".join(dict.fromkeys(device.bus for device in known if device.bus)),
        any(told) if told else None,
        remote=any(device.remote for device in known),
        memory=all(device.memory for device in known),
        virtual=any(device.virtual for device in known),
        image=next((device.image for device in known if device.image), None),
    )


def _of_disk(disk: str, mounts: Sequence[MountLine], layers: int) -> Device | None:
    """A whole disk by its folder in sysfs; a loop device is what its file lies on."""
    name, backing = os.path.basename(disk), _text(f"{disk}/loop/backing_file")
    if backing is not None:
        below = device_of(os.path.realpath(backing), mounts, layers - 1)
        through_memory = _text(f"{disk}/loop/dio") != "1"
        return replace(below, image=backing) if below is not None and through_memory else below
    if re.match(r"z?ram\d", name):
        return Device(name, memory=True)
    _, bus, remote, virtual = next((row for row in _BUSES if re.search(row[0], disk)), ("", "", False, False))
    if (_text(f"{disk}/device/vendor") or "").startswith(_VIRTUAL_VENDORS):
        bus, virtual = "virtual disk", True
    flag = _text(f"{disk}/queue/rotational")
    return Device(name, bus, None if flag is None else flag == "1", remote, virtual=virtual)


def _disks(folder: str, layers: int) -> list[str]:
    """The disks below a block device: a partition's disk, the members of a RAID, what an encrypted volume lies on."""
    if os.path.exists(f"{folder}/partition"):
        folder = os.path.dirname(folder)
    slaves = sorted(os.listdir(f"{folder}/slaves")) if os.path.isdir(f"{folder}/slaves") else []
    if not slaves or layers <= 0:
        return [folder]
    return [disk for name in slaves for disk in _disks(os.path.realpath(f"{folder}/slaves/{name}"), layers - 1)]


def _text(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(4096).strip()
    except OSError:
        return None


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
