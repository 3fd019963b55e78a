"""Slow storage for real: a process whose disk reads the kernel throttles measures a slow disk, and only that one."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from zdoctor.checks.storage import slow_storage
from zdoctor.doctor.model import Run, Speed, Storage, Unknown
from zdoctor.doctor.model.recipe import Recipe
from zdoctor.doctor.probe.disks import Device
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.probe.speed import speed_kind

LIMIT = 3 << 20
BLKIO = Path("/sys/fs/cgroup/blkio")
RUN = Run("ai-toolkit", "c.yaml", "/config/process/0", 0, "lora", "sd_trainer", "n", Recipe(architecture="zimage"))

MEASURE = textwrap.dedent(
    """
    import os, sys
    from zdoctor.doctor.probe.live import LiveWorld
    open(sys.argv[1] + "/cgroup.procs", "w").write(str(os.getpid()))
    speed = LiveWorld().speed([sys.argv[2]])
    print(speed.kind, speed.low, speed.high, sep="\\n")
    """
)


@pytest.fixture
def throttled(tmp_path: Path) -> Iterator[Path]:
    """A control group whose processes read LIMIT bytes a second from the disk under tmp_path."""
    group = BLKIO / f"zdoctor-test-{os.getpid()}"
    device = tmp_path.stat().st_dev
    try:
        group.mkdir()
        limit = f"{os.major(device)}:{os.minor(device)} {LIMIT}"
        (group / "blkio.throttle.read_bps_device").write_text(limit)
    except OSError as error:
        if group.is_dir():
            group.rmdir()
        pytest.skip(f"the kernel does not let this user throttle a disk: {error}")
    yield group
    group.rmdir()


def test_a_throttled_disk_is_slow_by_measurement(tmp_path: Path, throttled: Path) -> None:
    file = tmp_path / "weights"
    file.write_bytes(os.urandom(16 << 20))
    os.sync()
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(throttled), str(file)], capture_output=True, text=True, check=True
    )
    kind, low, high = done.stdout.split()
    slow = Speed(str(tmp_path), kind, "ext4", None, float(low), float(high), "measured")  # type: ignore[arg-type]
    assert kind in ("slow", "hdd")
    assert float(low) < 2 * LIMIT
    assert list(slow_storage(RUN, Storage(slow, 10**9)))
    fast = LiveWorld().speed([str(file)])
    assert isinstance(fast, Speed) and fast.low > float(low)


PLACES = """
import os, sys
from pathlib import Path
from zdoctor.checks.storage import place
from zdoctor.doctor.model import Speed
from zdoctor.doctor.probe import speed
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.probe.speed import held

def told(path):
    answer = LiveWorld().speed([str(path)])
    print(f"{place(answer)}: {answer.source}" if isinstance(answer, Speed) else answer.reason)

def drop(path):
    handle = os.open(path, os.O_RDONLY)
    os.sync()
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(handle)

def resident(path):
    with open(path, "rb") as file:
        return held(file.fileno(), 0, os.path.getsize(path))

base = Path(sys.argv[1])
"""


def in_namespace(script: str, folder: Path) -> list[str]:
    """What a Python script prints in a private mount namespace; skips where this user may not have one."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("mounting needs root on Linux")
    command = ["unshare", "-m", sys.executable, "-c", PLACES + textwrap.dedent(script), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"not possible here: {done.stderr.strip()[-200:]}")
    return done.stdout.splitlines()


def test_memory_is_called_memory(tmp_path: Path) -> None:
    (said,) = in_namespace(
        """
        assert os.system(f"mount -t tmpfs tmpfs {base}") == 0
        (base / "weights").write_bytes(os.urandom(8 << 20))
        told(base / "weights")
        """,
        tmp_path,
    )
    assert said.startswith("memory: measured:") and said.endswith("of files in memory")


def test_memory_never_passes_for_a_disk(tmp_path: Path) -> None:
    """An overlay, which is not read with O_DIRECT."""
    said = in_namespace(
        """
        for name in ("lower", "upper", "work", "merged"):
            (base / name).mkdir()
        (base / "lower" / "weights").write_bytes(os.urandom(32 << 20))
        layers = f"lowerdir={base}/lower,upperdir={base}/upper,workdir={base}/work"
        assert os.system(f"mount -t overlay overlay -o {layers} {base}/merged") == 0
        weights = base / "merged" / "weights"
        weights.read_bytes()
        told(weights)
        drop(weights)
        print(resident(weights))
        told(weights)
        with weights.open("rb") as file:
            file.read(8 << 20)
        before = resident(weights)
        told(weights)
        print(resident(weights) - before)
        """,
        tmp_path,
    )
    warm, nothing, cold, half, difference = said
    assert warm == "the files are all in memory; the next load comes from there, and the disk was not measured"
    assert nothing == "0"
    assert "of what was not in memory" in cold and "of what was not in memory" in half
    assert int(difference) <= 4096  # of 8192 pages: what was read was given back, but for some read-ahead


def test_a_cache_that_cannot_be_seen_is_not_measured(tmp_path: Path) -> None:
    """As with ZFS: after a read, the page cache still holds nothing."""
    (said,) = in_namespace(
        """
        speed.held = lambda *range: 0
        speed.DIRECT = ()
        (base / "weights").write_bytes(os.urandom(8 << 20))
        told(base / "weights")
        """,
        tmp_path,
    )
    assert said == "what lies in memory cannot be told from what is read, so the disk was not measured"


@pytest.mark.parametrize("refuse", [False, True])
def test_a_fuse_mount_by_its_name(refuse: bool, tmp_path: Path) -> None:
    said = in_namespace(
        f"""
        from zdoctor.tests.fuse_server import serve
        child = serve(str(base), refuse_direct={refuse})
        try:
            told(base / "weights")
            (base / "weights").read_bytes()
            told(base / "weights")
        finally:
            os.kill(child, 9)
        """,
        tmp_path,
    )
    assert said[0].startswith("a FUSE mount (zdoctor): measured:")
    assert ("of what was not in memory" if refuse else "past the page cache") in said[0]
    assert said[0].endswith("caches of the program behind the mount included")
    assert said[1].startswith("the files are all in memory" if refuse else "a FUSE mount (zdoctor)")


def test_a_mount_that_does_not_answer_holds_nobody_up(tmp_path: Path) -> None:
    (said,) = in_namespace(
        """
        from zdoctor.tests.fuse_server import serve
        speed.HANGS = 0.1
        child = serve(str(base), dead=True)
        try:
            told(base / "weights")
        finally:
            os.kill(child, 9)
        """,
        tmp_path,
    )
    assert "did not come back" in said


def test_holes_are_not_read(tmp_path: Path) -> None:
    """A hole is read at the speed of memory, whatever the disk."""
    with (tmp_path / "sparse").open("wb") as file:
        file.write(os.urandom(8192))
        file.truncate(1 << 30)
    answer = LiveWorld().speed([str(tmp_path / "sparse")])
    assert isinstance(answer, Unknown) and "holes" in answer.reason


def test_an_image_that_is_read_through_memory_is_not_measured(tmp_path: Path) -> None:
    """What lies on a loop device comes from the page cache of the image, also with O_DIRECT."""
    said = in_namespace(
        """
        (base / "point").mkdir()
        with (base / "image").open("wb") as file:
            file.write(os.urandom(48 << 20))
        assert os.system(f"mkfs.ext4 -q -F {base}/image && mount -o loop {base}/image {base}/point") == 0
        (base / "point" / "weights").write_bytes(os.urandom(16 << 20))
        os.sync()
        told(base / "point" / "weights")
        """,
        tmp_path,
    )
    assert said[0].startswith("the files lie in an image")


def test_direct_reads_of_btrfs_leave_their_pages_in_memory(tmp_path: Path) -> None:
    """Why btrfs is not read with O_DIRECT: what was read once would be read from memory the next time."""
    said = in_namespace(
        """
        with (base / "image").open("wb") as file:
            file.truncate(512 << 20)
        (base / "point").mkdir()
        assert os.system(f"mkfs.btrfs -q {base}/image > {base}/said") == 0, "no mkfs.btrfs"
        loop = os.popen(f"losetup --direct-io=on -f --show {base}/image").read().strip()
        assert os.system(f"mount {loop} {base}/point && losetup -d {loop}") == 0  # it goes with the mount
        weights = base / "point" / "weights"
        weights.write_bytes(os.urandom(16 << 20))
        drop(weights)
        buffer = memoryview(__import__("mmap").mmap(-1, 4 << 20))
        speed.direct(str(weights), buffer, 0)
        print(resident(weights))
        told(weights)
        weights.read_bytes()
        told(weights)
        """,
        tmp_path,
    )
    left, cold, warm = said
    assert int(left) == 0 or int(left) >= 1024  # with readahead, more than was asked for
    assert "of what was not in memory" in cold and warm.startswith("the files are all in memory")


def test_small_and_absent_files_have_no_speed(tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"x" * 5000)
    for name, reason in (("small", "too small"), ("absent", "cannot be read")):
        answer = LiveWorld().speed([str(tmp_path / name)])
        assert isinstance(answer, Unknown) and reason in answer.reason


VIRTUAL = Device("vda", True, virtual=True)


@pytest.mark.parametrize(
    ("filesystem", "latency", "fastest", "device", "kind"),
    [
        ("ext4", 60e-6, 2e9, None, "ssd"),
        ("ext4", 12e-3, 150e6, None, "hdd"),
        ("ext4", 500e-6, 40e6, None, "slow"),
        ("ext4", None, 2e9, None, "unknown"),
        ("nfs4", 60e-6, 2e9, None, "network"),
        ("fuse.drive", 40e-3, 2e7, None, "network"),
        ("9p", 1e-3, 1e8, None, "network"),
        ("tmpfs", 1e-6, 9e9, None, "memory"),
        ("virtiofs", 1e-4, 1e9, None, "network"),
        ("fuseblk", 12e-3, 90e6, None, "hdd"),  # NTFS on a disk of this machine
        ("ext4", 60e-6, 2e9, VIRTUAL, "ssd"),  # measurement overrules the flag
        ("ext4", 5e-3, 956e6, VIRTUAL, "ssd"),  # a busy host answers late; no head reads that fast
        ("ext4", 12e-3, 150e6, VIRTUAL, "slow"),  # what is behind it nobody can tell
        ("ext4", 5e-3, 956e6, None, "ssd"),
        ("ext4", 12e-3, 600e6, Device("md0", True), "hdd"),  # several disks at once
        ("ext4", 5e-3, 80e6, Device("sda", False), "slow"),  # a disk without heads that answers slowly
        ("ext4", 2e-3, 150e6, Device("sda", True), "hdd"),
        ("ext4", 2e-3, 150e6, Device("sda"), "ssd"),
    ],
)
def test_the_verdict_follows_the_measurement(
    filesystem: str, latency: float | None, fastest: float, device: Device | None, kind: str
) -> None:
    assert speed_kind(filesystem, latency, fastest, device) == kind
