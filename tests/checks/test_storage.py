"""DSK001: slow storage is a matter of measured seconds, not of flags."""

from __future__ import annotations

import pytest

from zdoctor.checks.storage import place, slow_storage
from zdoctor.doctor.model import Run, Speed, Storage, Unknown
from zdoctor.doctor.rules import Unestablished

RUN = Run("ai-toolkit", "c.yaml", "/config/process/0", 0, "lora", "sd_trainer", "n", "zimage")
GB = 10**9


def speed(kind: str, low: float, high: float, latency: float | None = 1e-4) -> Speed:
    return Speed("/m", kind, "ext4", latency, low, high, "measured: 24 reads")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("model", "size", "fires"),
    [
        (speed("hdd", 90e6, 160e6, 0.012), 20 * GB, True),
        (speed("network", 20e6, 60e6), 20 * GB, True),
        (speed("slow", 40e6, 90e6), 12 * GB, True),
        (speed("hdd", 90e6, 160e6, 0.012), GB // 10, False),  # a small model loads at once from anywhere
        (speed("ssd", 5e8, 1e9), 20 * GB, False),
        (speed("memory", 5e9, 9e9), 20 * GB, False),
        (speed("network", 2e9, 3e9), 20 * GB, False),  # a fast network is no trouble
        (speed("unknown", 1e6, 2e6, None), 20 * GB, False),
    ],
)
def test_only_seconds_lost_are_reported(model: Speed, size: int, fires: bool) -> None:
    assert bool(list(slow_storage(RUN, Storage(model, size)))) == fires


def test_the_figures_name_their_source_and_their_range() -> None:
    (finding,) = slow_storage(RUN, Storage(speed("hdd", 90e6, 160e6, 0.012), 20 * GB))
    text = finding.text()
    assert "measured: 24 reads" in text and "125 to 222 s" in text and "90 MB/s to 160 MB/s" in text


@pytest.mark.parametrize(
    ("kind", "filesystem", "device", "words"),
    [
        ("network", "nfs4", "", "a network mount (nfs4)"),
        ("network", "fuse.rclone", "", "a FUSE mount (rclone)"),
        ("network", "fuse", "", "a FUSE mount (fuse)"),
        ("network", "9p", "", "a shared folder of the host (9p)"),
        ("network", "ext4", "sdd, iSCSI", "a network disk (sdd, iSCSI, ext4)"),
        ("hdd", "ext4", "sda, SATA", "a hard disk (sda, SATA, ext4)"),
        ("ssd", "ext4", "", "an SSD (ext4)"),
        ("memory", "tmpfs", "", "memory"),
    ],
)
def test_the_place_is_named(kind: str, filesystem: str, device: str, words: str) -> None:
    assert place(Speed("/m", kind, filesystem, None, 1e6, 1e6, "measured", device)) == words  # type: ignore[arg-type]


def test_what_was_not_measured_is_not_known() -> None:
    with pytest.raises(Unestablished, match="no weight file"):
        list(slow_storage(RUN, Storage(Unknown("no weight file"), 0)))
