"""The disks below a path on Linux, through the table of mounts and sysfs. Only a hint: measurement overrules it.

Layouts: Documentation/filesystems/proc.rst (mountinfo) and Documentation/ABI/stable/sysfs-block of the kernel.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence

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
