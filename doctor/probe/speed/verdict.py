"""From the reads to a verdict: what the files lie on, and how fast that is."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from ...model import Speed, Unknown
from ...model.record import replace
from ..device import Device, device_below
from ..device.linux import MountLine, mount_of
from ..device.windows import PLACEHOLDER, is_placeholder
from ..world import Mount
from . import measure

MEMORY = ("tmpfs", "ramfs", "ramdisk")
NETWORK = (
    "nfs",
    "cifs",
    "smb",
    "afp",
    "webdav",
    "lustre",
    "ceph",
    "afs",
    "gpfs",
    "beegfs",
    "gluster",
    "mapped drive",
)
# Bytes per second that no single hard disk reads.
ONE_DISK = 300e6
HOST = ("9p", "drvfs", "virtiofs", "vboxsf", "vmhgfs", "prl_fs")


def speed_of(
    files: Sequence[str], mount: Callable[[str], Mount | Unknown], lines: Sequence[MountLine]
) -> Speed | Unknown:
    """The speed of files of one folder. `mount` and `lines` are what the system says of its mounts."""
    if not files:
        return Unknown("there is no file to read")
    try:
        cloud = next((file for file in files if is_placeholder(os.stat(file))), None)
    except (OSError, ValueError) as error:
        return Unknown(f"the files cannot be read ({getattr(error, 'strerror', None) or error})")
    if cloud is not None:
        return Unknown(f"{cloud} is {PLACEHOLDER}")
    on, real = mount(files[0]), os.path.realpath(files[0])
    point, filesystem = (on.point, on.filesystem) if isinstance(on, Mount) else ("", "unknown")
    device = device_below(real, point, lines)
    if device is not None and device.image is not None:
        return _of_image(device.image, files[0], filesystem, speed_of([device.image], mount, lines))
    line = mount_of(real, lines)
    samples = measure(files, filesystem, line.options if line is not None else "")
    if isinstance(samples, Unknown):
        return samples
    latency = sorted(samples.latencies)[len(samples.latencies) // 2] if samples.latencies else None
    caches = ", caches of the host included" if device is not None and device.virtual else ""
    caches = ", caches of the program behind the mount included" if filesystem.startswith("fuse") else caches
    return Speed(
        path=str(Path(files[0]).parent),
        kind=speed_kind(filesystem, latency, max(samples.streams), device),
        filesystem=filesystem,
        latency=latency,
        low=min(samples.streams),
        high=max(samples.streams),
        source=f"measured: {len(samples.latencies)} random 4 KiB and {len(samples.streams)} sequential reads "
        f"{samples.how}{caches}",
        device=device.words if device is not None else "",
    )


def _of_image(image: str, file: str, filesystem: str, speed: Speed | Unknown) -> Speed | Unknown:
    """The speed of the file behind a loop device, which is what can be read past the page cache."""
    if isinstance(speed, Unknown):
        return Unknown(f"the files lie in the image {image}: {speed.reason}")
    source = f"{speed.source}, of the image {image}"
    return replace(speed, path=str(Path(file).parent), filesystem=filesystem, source=source)


def speed_kind(
    filesystem: str, latency: float | None, fastest: float, device: Device | None = None
) -> Literal["ssd", "hdd", "network", "memory", "slow", "unknown"]:
    """A verdict by measurement first: `queue/rotational` calls virtual flash an HDD, and a tired SSD is none."""
    remote, memory = (device.remote, device.memory) if device is not None else (False, False)
    if filesystem.startswith((*NETWORK, *HOST, "fuse.")) or filesystem == "fuse" or remote:
        return "network"
    if filesystem in MEMORY or memory:
        return "memory"
    if latency is None:
        return "unknown"
    waits = latency > 3e-3
    tired = fastest < 100e6 or (waits and fastest < ONE_DISK)
    if device is not None and device.virtual:  # its flag is made up, and nobody can tell what is behind it
        return "slow" if tired else "ssd"
    seeks = device.seeks if device is not None else None
    if seeks and (waits or (latency > 1e-3 and fastest < ONE_DISK)):
        return "hdd"
    if seeks is None and waits and fastest < ONE_DISK:
        return "hdd"
    return "slow" if tired else "ssd"
