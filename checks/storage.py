"""Storage: how long the model takes to be read from where it lies."""

from __future__ import annotations

from collections.abc import Iterator

from ..doctor.model import Finding, Run, Storage, Unknown, found
from ..doctor.rules import Unestablished, rule

WORTH_SECONDS = 20.0
KINDS = {
    "hdd": "a hard disk",
    "network": "a network or virtual mount",
    "slow": "slow storage",
    "ssd": "an SSD",
    "memory": "memory",
    "unknown": "storage of an unknown kind",
}


@rule("DSK001", "warning", "slow-storage")
def slow_storage(run: Run, storage: Storage) -> Iterator[Finding]:
    """The model lies on slow storage, by measurement.

    What: Parts of the model's own files are read past the page cache; the time to load all of it follows.
    Why: Every start reads the whole model. From a hard disk 20 GB take minutes, from an SSD seconds.
    Repair: A verified copy on faster storage of this machine, with the config pointed at it. The original stays.
    The kernel's "rotational" flag is not used: virtual disks on flash call themselves rotational.
    Signature: None; the run is slow to start.
    """
    speed = storage.model
    if isinstance(speed, Unknown):
        raise Unestablished(speed.reason)
    if speed.kind not in ("hdd", "network", "slow") or storage.model_bytes <= 0:
        return
    slowest = storage.model_bytes / max(speed.low, 1.0)
    fastest = storage.model_bytes / max(speed.high, 1.0)
    if slowest < WORTH_SECONDS:
        return
    yield found(
        run.where("base_model"),
        "{size:.3g} {unit} of model files lie on {kind} ({filesystem}): {fastest:.0f} to {slowest:.0f} s per start, "
        "computed from {low} to {high} ({source}).",
        otherwise="Every start waits that long before the first step.",
        evidence={
            "path": speed.path,
            "latency_s": speed.latency,
            "bytes_per_second": [speed.low, speed.high],
            "model_bytes": storage.model_bytes,
            "source": speed.source,
        },
        size=storage.model_bytes / (1e9 if storage.model_bytes >= 1e9 else 1e6),
        unit="GB" if storage.model_bytes >= 1e9 else "MB",
        kind=KINDS[speed.kind],
        filesystem=speed.filesystem,
        fastest=fastest,
        slowest=slowest,
        low=_rate(speed.low),
        high=_rate(speed.high),
        source=speed.source,
    )


def _rate(bytes_per_second: float) -> str:
    if bytes_per_second >= 1e6:
        return f"{bytes_per_second / 1e6:.3g} MB/s"
    return f"{bytes_per_second / 1e3:.3g} kB/s"
