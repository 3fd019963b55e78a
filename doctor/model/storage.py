"""Where files lie: how fast they can be read, and how much room there is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from .record import dataclass
from .unknown import Unknown

HOST = ("9p", "drvfs", "virtiofs", "vboxsf", "vmhgfs", "prl_fs")  # file systems of a folder that the host shares


@dataclass(frozen=True)
class Speed:
    """How fast the files under `path` can be read. `source` names how the figures were got.

    `low` and `high` are bytes per second; `latency` seconds for a small random read, None when it was not measured.
    `device` names the disk or disks below ("nvme0n1"), "" where the system does not say.
    """

    path: str
    kind: Literal["ssd", "hdd", "network", "memory", "slow", "unknown"]
    filesystem: str
    latency: float | None
    low: float
    high: float
    source: str
    device: str = ""


@dataclass(frozen=True)
class Place:
    """A folder that could hold a copy of the model: how fast it is and how much room it has.

    `parts`: names in it to which an extraction was cut short, with the bytes of its part, which the next one to the
    same name goes on with.
    """

    folder: str
    free: int
    speed: Speed | None
    refusal: str | None = None
    parts: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Storage:
    """`model` is the speed of the model's own files with their total size; `places` could hold a copy."""

    model: Speed | Unknown
    model_bytes: int
    places: tuple[Place, ...] = ()


@dataclass(frozen=True)
class Room:
    """A file system that the run writes to. `free` is None where that is not known.

    `items` are the bytes that will surely be written, by what they are: lower bounds, computed. `key` is the setting
    that most of it hangs on, `folders` where it goes.
    """

    mount: str
    free: int | None
    items: Mapping[str, int]
    key: str
    folders: tuple[str, ...]
