"""What a path lies on: recorded layouts of sysfs, and this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from zdoctor.doctor.model import Unknown
from zdoctor.doctor.probe.digests import digests
from zdoctor.doctor.probe.disks import Device, device_in, device_of, mount_of, read_mounts
from zdoctor.doctor.probe.live import LiveWorld

PCI = "devices/pci0000:00/0000:00:1f.2"
Block = tuple[str, str, bool, tuple[str, ...]]  # its place in sysfs, rotational, a partition or not, its members


def sysfs(root: Path, blocks: dict[str, Block]) -> str:
    """A tree as the kernel lays it out: dev/block/M:m links to the device, slaves/ to the members."""
    (root / "dev" / "block").mkdir(parents=True)
    for number, (place, rotational, partition, members) in blocks.items():
        folder = root / place
        (folder / "slaves").mkdir(parents=True, exist_ok=True)
        if partition:
            (folder / "partition").write_text("1\n")
        else:
            (folder / "queue").mkdir(exist_ok=True)
            (folder / "queue" / "rotational").write_text(f"{rotational}\n")
        for member in members:
            (folder / "slaves" / Path(blocks[member][0]).name).symlink_to(root / blocks[member][0])
        (root / "dev" / "block" / number).symlink_to(folder)
    return str(root)


def disk(place: str, rotational: str = "0", *, partition: bool = False, members: tuple[str, ...] = ()) -> Block:
    return place, rotational, partition, members


NVME = disk(f"{PCI}/nvme/nvme0/nvme0n1")
SATA = disk(f"{PCI}/ata1/host0/target0:0:0/0:0:0:0/block/sda", "1")
SECOND = disk(f"{PCI}/ata2/host1/target1:0:0/1:0:0:0/block/sdb", "0")
STICK = disk(f"{PCI}/usb2/2-1/2-1:1.0/host4/target4:0:0/4:0:0:0/block/sdc", "1")
ISCSI = disk("devices/platform/host2/session1/target2:0:0/2:0:0:1/block/sdd")
FABRIC = disk("devices/virtual/nvme-fabrics/ctl/nvme1/nvme1n1")
VIRTUAL = disk("devices/pci0000:00/0000:00:02.0/virtio1/block/vda", "1")
RAID = disk("devices/virtual/block/md0", members=("1:1", "1:2"))
VOLUME = disk("devices/virtual/block/dm-1", members=("1:0",))
LUKS = disk("devices/virtual/block/dm-0", members=("1:1",))


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        ({"9:9": NVME}, Device("nvme0n1", False)),
        ({"9:9": disk(f"{NVME[0]}/nvme0n1p2", partition=True), "9:1": NVME}, Device("nvme0n1", False)),
        ({"9:9": SATA}, Device("sda", True)),
        ({"9:9": RAID, "1:1": SATA, "1:2": SECOND}, Device("sda + sdb", True)),
        ({"9:9": VOLUME, "1:0": LUKS, "1:1": NVME}, Device("nvme0n1", False)),
        ({"9:9": STICK}, Device("sdc", True)),
        ({"9:9": ISCSI}, Device("sdd", False)),
        ({"9:9": disk("devices/virtual/block/nbd0")}, Device("nbd0", False)),
        ({"9:9": FABRIC}, Device("nvme1n1", False)),
        ({"9:9": VIRTUAL}, Device("vda", True, virtual=True)),
        ({"9:9": disk("devices/virtual/block/zram0")}, Device("zram0", False)),
    ],
)
def test_disks_of_linux(blocks: dict[str, Block], expected: Device, tmp_path: Path) -> None:
    assert device_in(f"{sysfs(tmp_path, blocks)}/dev/block/9:9") == expected


def test_disks_that_a_virtual_machine_made_up(tmp_path: Path) -> None:
    root = sysfs(tmp_path, {"9:9": SATA})
    (tmp_path / SATA[0] / "device").mkdir()
    (tmp_path / SATA[0] / "device" / "vendor").write_text("VMware, \n")
    assert device_in(f"{root}/dev/block/9:9") == Device("sda", True, virtual=True)


def test_rings_and_gaps_in_sysfs_end(tmp_path: Path) -> None:
    blocks = {"9:9": disk("devices/virtual/block/dm-0", members=("1:1",)), "1:1": disk("devices/virtual/block/dm-1")}
    root = sysfs(tmp_path, blocks)
    (tmp_path / blocks["1:1"][0] / "slaves" / "dm-0").symlink_to(tmp_path / blocks["9:9"][0])
    assert device_in(f"{root}/dev/block/9:9") is not None
    assert device_in(f"{root}/dev/block/8:8") is None


MOUNTS = r"""
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
30 27 0:44 / /data/my\040models rw shared:5 - btrfs /dev/sdb1 rw,compress=zstd:3,space_cache=v2
31 27 0:50 / /mnt/g rw - fuse.rclone gdrive: rw,user_id=0
32 27 0:51 / /old rw - nfs4 nas:/export rw
33 27 0:52 / /old rw - tmpfs tmpfs rw
broken line
""".strip()


def test_the_table_of_mounts() -> None:
    mounts = read_mounts(MOUNTS)
    deep = mount_of("/data/my models/a/b", mounts)
    assert deep is not None and (deep.filesystem, deep.source) == ("btrfs", "/dev/sdb1")
    assert "compress=zstd:3" in deep.options
    newest, other = mount_of("/old/x", mounts), mount_of("/older", mounts)
    assert newest is not None and newest.filesystem == "tmpfs"
    assert other is not None and other.filesystem == "ext4"


def test_what_this_machine_lies_on(tmp_path: Path) -> None:
    number = tmp_path.stat().st_dev
    if sys.platform != "linux" or not os.major(number):
        pytest.skip("the temporary folder is on no block device here")
    device = device_of(str(tmp_path), read_mounts(Path("/proc/self/mountinfo").read_text()))
    assert device is not None and device.name
    assert device_of("/proc/self", read_mounts(Path("/proc/self/mountinfo").read_text())) is None


def test_placeholders_of_a_cloud_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attribute of OneDrive's files on demand, put into the answer of stat, which has none on other systems."""
    file = tmp_path / "a.safetensors"
    file.write_bytes(bytes(1 << 20))
    assert isinstance(LiveWorld().read(str(file)), bytes)
    real = os.stat

    def marked(path: object, **more: object) -> object:
        state = real(path, **more)  # type: ignore[arg-type]
        fields = {name: getattr(state, name) for name in dir(state) if name.startswith("st_")}
        return SimpleNamespace(**{**fields, "st_file_attributes": 0x400020})

    monkeypatch.setattr(os, "stat", marked)
    world = LiveWorld()
    told = [world.read(str(file)), world.speed([str(file)]), world.digests({str(file): "sha256"})[str(file)]]
    assert all(isinstance(answer, Unknown) and "cloud placeholder" in answer.reason for answer in told)
    monkeypatch.undo()
    assert isinstance(digests({str(file): "sha256"}, lambda files: 1, None, None)[str(file)], str)
