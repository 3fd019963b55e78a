"""Linux: from a path through the table of mounts and sysfs to the disks below it.

Layouts: Documentation/filesystems/proc.rst (mountinfo) and Documentation/ABI/stable/sysfs-block of the kernel.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence

from ...model.record import dataclass, replace
from . import Device, together

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
    (r"/virtio\d", "virtual disk", False, True),
    (r"/vmbus|VMBUS", "virtual disk of Hyper-V", False, True),
    (r"/vbd-", "virtual disk of Xen", False, True),
    (r"/pmem\d", "persistent memory", False, False),
)
_VIRTUAL_VENDORS = ("VMware", "QEMU", "VBOX", "Msft", "Google", "Amazon")


@dataclass(frozen=True)
class MountLine:
    """One line of /proc/self/mountinfo. `root` is the folder of the file system that stands at `point`."""

    root: str
    point: str
    filesystem: str
    source: str
    options: str

    def option(self, name: str) -> str | None:
        found = re.search(rf"(?:^|,){name}=((?:\\.|[^,\\])*)", self.options)
        return found[1] if found else None


def read_mounts(text: str) -> tuple[MountLine, ...]:
    """The lines of a mountinfo text, the deepest mount points first, among equal ones the newest."""
    found: list[MountLine] = []
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        fields, kinds = [unescape(part) for part in left.split()], [unescape(part) for part in right.split()]
        if len(fields) > 4 and len(kinds) > 1:
            found.append(MountLine(fields[3], fields[4], kinds[0], kinds[1], kinds[2] if len(kinds) > 2 else ""))
    found.reverse()
    return tuple(sorted(found, key=lambda mount: -len(mount.point)))


def mount_of(path: str, mounts: Sequence[MountLine]) -> MountLine | None:
    """The mount that holds an absolute path without links."""
    return next((m for m in mounts if path == m.point or path.startswith(m.point.rstrip("/") + "/")), None)


def device_of(
    path: str, mounts: Sequence[MountLine], sysfs: str = "/sys", layers: int = MOST_LAYERS
) -> Device | None:
    """What a file or folder lies on, None where that cannot be told (ZFS, a layer outside of this container)."""
    if sys.platform == "win32" or layers <= 0:
        return None
    mount = mount_of(path, mounts)
    try:
        number = os.stat(path).st_dev
        if os.major(number):
            return _of_number(f"{os.major(number)}:{os.minor(number)}", mounts, sysfs, layers)
        if mount is None:
            return None
        if mount.filesystem == "overlay":
            below = _below_overlay(path, mount)
            return device_of(os.path.realpath(below), mounts, sysfs, layers - 1) if below else None
        if mount.source.startswith("/dev/"):  # btrfs: the numbers of its files are no disk's
            number = os.stat(mount.source).st_rdev
            return _of_number(f"{os.major(number)}:{os.minor(number)}", mounts, sysfs, layers)
    except OSError:
        return None
    return None


def _below_overlay(path: str, mount: MountLine) -> str | None:
    """Where a file of an overlay really lies: the upper folder, else the first lower one that has it."""
    inside = os.path.relpath(path, mount.point) if mount.root == "/" else None
    if inside is None:
        return None
    upper, lower = mount.option("upperdir"), mount.option("lowerdir")
    folders = [upper or "", *re.split(r"(?<!\\):", lower or "")]
    for folder in folders:
        candidate = os.path.normpath(os.path.join(folder.replace("\\:", ":"), inside))
        if folder.startswith("/") and os.path.exists(candidate):
            return candidate
    return None


def _of_number(number: str, mounts: Sequence[MountLine], sysfs: str, layers: int) -> Device | None:
    folder = os.path.realpath(f"{sysfs}/dev/block/{number}")
    if not os.path.isdir(folder):
        return None
    found: list[tuple[str, str, Device]] = []
    for disk in _disks(folder, layers):
        backing = _text(f"{disk}/loop/backing_file")
        if backing is not None:
            below = device_of(os.path.realpath(backing), mounts, sysfs, layers - 1)
            if below is None:
                return None
            through_memory = _text(f"{disk}/loop/dio") != "1"
            found.append((below.words, "", replace(below, image=backing) if through_memory else below))
        else:
            found.append(_describe(disk))
    return together(found)


def _disks(folder: str, layers: int) -> list[str]:
    """The disks below a block device: a partition's disk, the members of a RAID, what an encrypted volume lies on."""
    if os.path.exists(f"{folder}/partition"):
        folder = os.path.dirname(folder)
    try:
        slaves = sorted(os.listdir(f"{folder}/slaves"))
    except OSError:
        slaves = []
    if not slaves or layers <= 0:
        return [folder]
    return [disk for name in slaves for disk in _disks(os.path.realpath(f"{folder}/slaves/{name}"), layers - 1)]


def _describe(disk: str) -> tuple[str, str, Device]:
    """(name, bus, Device) of a whole disk by its folder in sysfs."""
    name = os.path.basename(disk)
    if re.match(r"z?ram\d", name):
        return name, "", Device(name, memory=True)
    vendor = _text(f"{disk}/device/vendor") or ""
    _, bus, remote, virtual = next((row for row in _BUSES if re.search(row[0], disk)), ("", "", False, False))
    if vendor.startswith(_VIRTUAL_VENDORS):
        bus, virtual = "virtual disk", True
    flag = _text(f"{disk}/queue/rotational")
    return name, bus, Device(name, None if flag is None else flag == "1", remote, False, virtual)


def _text(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(4096).strip()
    except OSError:
        return None


def unescape(text: str) -> str:
    """Undo the octal escapes of mountinfo."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
