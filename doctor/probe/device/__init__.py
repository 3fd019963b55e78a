"""What the files of a folder lie on, by what the system knows of it. Only a hint: measurement overrules it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...model.record import dataclass, replace

if TYPE_CHECKING:
    from .linux import MountLine


@dataclass(frozen=True)
class Device:
    """One disk, or several that a volume is spread over.

    `words` name it ("nvme0n1, NVMe"). `seeks` is what the system says of moving heads, None when it says nothing;
    virtual disks on flash are often said to have them. `remote` when it is reached over a network, `memory` when it
    is RAM, `virtual` when a host with caches of its own stands behind it. `image` is the file behind a loop device
    that reads it through memory: however one reads what is in it, the page cache answers.
    """

    words: str
    seeks: bool | None = None
    remote: bool = False
    memory: bool = False
    virtual: bool = False
    image: str | None = None


def together(devices: Sequence[tuple[str, str, Device]]) -> Device | None:
    """One Device for (name, bus, device) of every disk below a volume: it is as slow as the slowest of them."""
    if not devices:
        return None
    names = " + ".join(dict.fromkeys(name for name, _, _ in devices if name))
    buses = " + ".join(dict.fromkeys(bus for _, bus, _ in devices if bus))
    told = [device.seeks for _, _, device in devices if device.seeks is not None]
    return replace(
        devices[0][2],
        words=", ".join(part for part in (names, buses) if part),
        seeks=any(told) if told else None,
        remote=any(device.remote for _, _, device in devices),
        memory=all(device.memory for _, _, device in devices),
        virtual=any(device.virtual for _, _, device in devices),
        image=next((device.image for _, _, device in devices if device.image), None),
    )


def device_below(real: str, point: str, lines: Sequence[MountLine]) -> Device | None:
    """What a path without links lies on, below the mount `point`; None where this system does not say."""
    if sys.platform == "win32":
        from .windows import device_of as on_windows

        return on_windows(point)
    if sys.platform == "darwin":
        from .macos import device_of as on_macos

        return on_macos(point)
    from .linux import device_of

    return device_of(real, lines)
