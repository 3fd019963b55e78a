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
from zdoctor.doctor.model import Run, Speed, Storage
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.probe.speed import speed_kind

LIMIT = 3 << 20
BLKIO = Path("/sys/fs/cgroup/blkio")
RUN = Run("ai-toolkit", "c.yaml", "/config/process/0", 0, "lora", "sd_trainer", "n", "zimage")

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


@pytest.mark.parametrize(
    ("filesystem", "latency", "fastest", "kind"),
    [
        ("ext4", 60e-6, 2e9, "ssd"),
        ("ext4", 12e-3, 150e6, "hdd"),
        ("ext4", 500e-6, 40e6, "slow"),
        ("ext4", None, 2e9, "unknown"),
        ("nfs4", 60e-6, 2e9, "network"),
        ("fuse.drive", 40e-3, 2e7, "network"),
        ("9p", 1e-3, 1e8, "network"),
        ("tmpfs", 1e-6, 9e9, "memory"),
    ],
)
def test_the_verdict_follows_the_measurement(
    filesystem: str, latency: float | None, fastest: float, kind: str
) -> None:
    assert speed_kind(filesystem, latency, fastest) == kind
