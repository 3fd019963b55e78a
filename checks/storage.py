"""Storage: how long the model takes to be read from where it lies, and whether there is room for what is written."""

from __future__ import annotations

from collections.abc import Iterator

from ..doctor.model import Finding, Room, Run, Speed, Storage, Unknown, found
from ..doctor.model.amounts import amount
from ..doctor.model.said import AsIs, filled
from ..doctor.model.storage import HOST
from ..doctor.rules import Unestablished, prevents, rule

WORTH_SECONDS = 20.0
KINDS = {
    "hdd": "a hard disk",
    "network": "a network disk",
    "slow": "slow storage",
    "ssd": "an SSD",
    "memory": "memory",
    "unknown": "storage of an unknown kind",
}


@rule("DSK001", "warning", "slow-storage")
def slow_storage(run: Run, storage: Storage) -> Iterator[Finding]:
    """The model lies on slow storage, by measurement.

    What: Parts of the model's own files are read past the page cache, or where the file system refuses that, parts
    that are not in memory; the time to load all of it follows. When all of them are in memory, nothing is measured.
    Why: Every start reads the whole model. From a hard disk 20 GB take minutes, from an SSD seconds.
    Repair: A verified copy on faster storage of this machine, with the config pointed at it. The original stays.
    The kernel's "rotational" flag is a hint that measurement overrules: virtual disks on flash call themselves
    rotational.
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
        "{size} of model files lie on {place}: {fastest:.0f} to {slowest:.0f} s per start, "
        "computed from {low} to {high} ({source}).",
        otherwise="Every start waits that long before the first step.",
        evidence={
            "path": speed.path,
            "latency_s": speed.latency,
            "bytes_per_second": [speed.low, speed.high],
            "model_bytes": storage.model_bytes,
            "source": speed.source,
            "filesystem": speed.filesystem,
            "device": speed.device,
        },
        size=amount(storage.model_bytes),
        place=place(speed),
        fastest=fastest,
        slowest=slowest,
        low=f"{amount(int(speed.low))}/s",
        high=f"{amount(int(speed.high))}/s",
    )


@rule("DSK002", "error", "disk-space")
@prevents("OSError", r"No space left on device")
def disk_space(run: Run, room: tuple[Room, ...]) -> Iterator[Finding]:
    """Less room than the run will surely write.

    What: The free bytes of every file system that the run writes to, held against what goes there: missing files of
    the model, latents and text embeddings cached to disk, LoRA files and the optimizer's state (zdoctor's runner:
    the run's, of which the new one is written before the old one goes). Each is computed from sizes that are known,
    as the least it can be; samples and logs count as nothing, and so does what an earlier run left behind.
    Why: The disk is full hours into the run, at the first save that does not fit, and that save is cut off.
    Repair: Make room, or let the run write to a larger disk (training_folder). Fewer saves: save_every,
    max_step_saves_to_keep. Latents can stay in memory: cache_latents in place of cache_latents_to_disk.
    Signature: OSError: [Errno 28] No space left on device; SafetensorError: … No space left on device
    """
    full = [one for one in room if one.free is not None and sum(one.items.values()) > one.free]
    unsure = next((one for one in room if one.free is None), None)
    if unsure is not None and not full:
        raise Unestablished(f"how much room {unsure.folders[0]} has is not known")
    for one in full:
        yield found(
            run.where(one.key),
            "The run writes at least {wanted} to {mount}, where {free} are free: {parts} (computed).",
            otherwise="The run ends at the first save that does not fit; the ones before it stay."
            if run.by_runner
            else "It ends with OSError: No space left on device, and what it was writing is cut off.",
            evidence={"items": dict(one.items), "free": one.free, "folders": list(one.folders)},
            mount=one.mount,
            wanted=amount(sum(one.items.values())),
            free=amount(one.free or 0),
            parts=", ".join(f"{what} {amount(size)}" for what, size in one.items.items()),
        )


def place(speed: Speed) -> str:
    """What the files lie on, in words: "a hard disk (sda, ext4)", "a FUSE mount (rclone)", "memory"."""
    filesystem = speed.filesystem
    if speed.kind == "memory":
        return KINDS[speed.kind]
    if speed.kind == "network" and not speed.device:
        if filesystem.startswith("fuse"):
            return f"a FUSE mount ({filesystem.partition('.')[2] or filesystem})"
        return f"a {'shared folder of the host' if filesystem in HOST else 'network mount'} ({filesystem})"
    details = ", ".join(part for part in (speed.device, filesystem) if part)
    return filled("{kind} ({details})", {"kind": KINDS[speed.kind], "details": AsIs(details)})
