"""What was seen of the world. Frozen records, keyed by the words of the config; sizes are bytes, paths strings.

Nothing here looks: `doctor/probe` fills these in, and a rule reads them.
"""

from __future__ import annotations

import ntpath
import posixpath
from collections.abc import Mapping
from dataclasses import field
from functools import cached_property
from typing import Any, Literal

from .checkout import Checkout
from .earlier import EarlierSave
from .environment import Environment
from .hub import Hub
from .microstep import MicroStep
from .record import dataclass
from .run import Config, Run
from .schema import Schema
from .script import Script
from .storage import Room, Storage
from .unknown import Unknown


@dataclass(frozen=True)
class System:
    """The computer. `environment` holds only the variables that change what a trainer does, never secrets.

    `interpreter` is the Python that looks, "" where it is not known.
    """

    os: Literal["linux", "windows", "darwin"]
    release: str
    python: str
    cwd: str
    home: str
    cpus: int
    memory_total: int
    memory_available: int
    environment: Mapping[str, str] = field(default_factory=dict)
    recorded: str | None = None
    interpreter: str = ""

    def join(self, *parts: str) -> str:
        """Path parts joined as this system joins them."""
        joined: str = (ntpath if self.os == "windows" else posixpath).join(*parts)
        return joined

    def absolute(self, path: str) -> str:
        """A path from the working directory on, without `..` in it."""
        flavour = ntpath if self.os == "windows" else posixpath
        return str(flavour.normpath(flavour.join(self.cwd, path)))

    def base(self, path: str) -> str:
        """The last part of a path, a trailing separator ignored."""
        name: str = (ntpath if self.os == "windows" else posixpath).basename(path.rstrip("/\\"))
        return name


@dataclass(frozen=True)
class Gpu:
    """One card. `source` says how the numbers were got ("measured: NVML", "recorded: …")."""

    index: int
    name: str
    memory_total: int
    memory_free: int
    capability: tuple[int, int] | None
    driver: str
    source: str


@dataclass(frozen=True)
class Entry:
    """What lies at a path. A link is followed: `kind` is that of its target, `dangling` when there is none."""

    path: str
    kind: Literal["file", "folder", "missing", "dangling", "other", "denied"]
    size: int = 0
    is_link: bool = False
    children: tuple[str, ...] = ()


@dataclass(frozen=True)
class Files:
    """The entries behind the paths of a run, by the path as it is written in the config."""

    entries: Mapping[str, Entry]

    def at(self, written: str | None) -> Entry | None:
        return self.entries.get(written) if written is not None else None


@dataclass(frozen=True)
class WritePlace:
    """A folder the trainer will write to. `refusal` is None where it can, else the system's own reason."""

    what: str
    folder: str
    key: str
    phase: str
    refusal: str | Unknown | None


@dataclass(frozen=True)
class Writes:
    """Everything the run writes, in the order it happens; `mirror_root` is where a writable mirror may stand."""

    places: tuple[WritePlace, ...]
    mirror_root: str | None = None


@dataclass(frozen=True)
class Tensor:
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class WeightFile:
    """One weight file, by its header only. `problem` is None when the header and the size are consistent."""

    name: str
    path: str
    size: int
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    problem: (
        Literal["missing", "empty", "truncated", "not-safetensors", "bad-header", "pickle", "unreadable"] | None
    ) = None
    detail: str = ""


@dataclass(frozen=True)
class Component:
    """One part of a model folder. `needed` are the tensors the architecture builds, None when it is not known.

    `repo` is the hub repository that the loader takes this part from, None for a plain folder on this machine;
    `key` the field or setting of the run that names it.
    """

    name: str
    folder: str
    class_name: str | None
    config: Mapping[str, Any] | None
    weights: tuple[WeightFile, ...]
    index: Mapping[str, str] | None = None
    index_file: str | None = None
    needed: Mapping[str, tuple[int, ...]] | None = None
    needed_reason: str = ""
    missing_files: tuple[str, ...] = ()
    problem: str | None = None
    repo: str | None = None
    key: str = "base_model"

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """Every tensor of every readable weight file."""
        return {name: tensor for file in self.weights for name, tensor in file.tensors.items()}


@dataclass(frozen=True)
class ModelFolder:
    """The base model as the trainer will open it.

    `source` is the config's word for it; `folder` where the files lie (the snapshot folder for a hub id), or None
    when nothing of it is on this machine; `repo` and `commit` are set when it comes from a hub cache. "part-files":
    the config names a file of its own for each part.
    """

    source: str
    layout: Literal["diffusers", "transformer-only", "single-file", "part-files", "absent"]
    folder: str | None
    components: Mapping[str, Component] = field(default_factory=dict)
    repo: str | None = None
    commit: str | None = None


@dataclass(frozen=True)
class Image:
    path: str
    width: int
    height: int
    caption: bool


@dataclass(frozen=True)
class Garbled:
    """A caption that is not UTF-8: the first byte that is none, at `position`, in line `line`.

    `encoding` is the one that it is surely in (by its byte-order mark) or may be in, "" when it cannot be told;
    `text` is it in that encoding.
    """

    path: str
    byte: int
    position: int
    line: int
    encoding: str = ""
    text: str = ""


@dataclass(frozen=True)
class DatasetFolder:
    """What a dataset folder holds, as the trainer walks it.

    `unreadable` are image files that cannot be decoded, with the reason; `more` counts images that were not looked
    into. `others` counts the files of other kinds by extension, captions left out; `unlisted` the folders inside that
    could not be listed, `captions` the files beside pictures that may be their captions, by extension. `blank` counts
    the captions with nothing in them; `garbled` are those that are not UTF-8.
    """

    key: str
    path: str
    images: tuple[Image, ...]
    unreadable: Mapping[str, str] = field(default_factory=dict)
    more: int = 0
    others: Mapping[str, int] = field(default_factory=dict)
    unlisted: int = 0
    captions: Mapping[str, int] = field(default_factory=dict)
    blank: int = 0
    garbled: tuple[Garbled, ...] = ()


@dataclass(frozen=True)
class Phase:
    """A phase of a run and its bytes on the device, item by item."""

    name: str
    items: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.items.values())


@dataclass(frozen=True)
class Memory:
    """Predicted device memory, phase by phase, with the measured budget it is held against.

    `alternatives` are the settings that lower the peak: (key, value, training effect, resulting peak bytes),
    each applied on top of the ones before it. The true peak is expected within `margin` bytes of the computed one.
    There are `cards` of the same kind, of which the fullest has `least_free` bytes left; the transformer's blocks
    take `blocks` bytes, the largest of them `block`.
    """

    device: str
    phases: tuple[Phase, ...]
    total: int
    free: int
    budget_source: str
    assumptions: str
    host_peak: int = 0
    host_free: int = 0
    alternatives: tuple[tuple[str, Any, str, int], ...] = ()
    margin: int = 0
    cards: int = 1
    least_free: int = 0
    blocks: int = 0
    block: int = 0

    @property
    def peak(self) -> Phase:
        return max(self.phases, key=lambda phase: phase.total)

    def sharded(self, count: int) -> int:
        """The peak on each of `count` cards that share the blocks out, two of which are put together at a time."""
        saved = self.blocks - self.blocks // count - 2 * self.block
        return max(phase.total - saved * ("transformer" in phase.items) for phase in self.phases)

    def only_fits_sharded(self, count: int) -> bool:
        """Whether the model may be too large for one card, and `count` of them hold it together."""
        tight = self.peak.total + self.margin > self.free
        return tight and 1 < count <= self.cards and self.sharded(count) + self.margin <= self.least_free


NOT_ASKED = Unknown("not looked at")


@dataclass(frozen=True)
class Facts:
    """All that is known. A rule's parameters are names of these fields."""

    config: Config | Unknown = NOT_ASKED
    run: Run | Unknown = NOT_ASKED
    system: System | Unknown = NOT_ASKED
    gpus: tuple[Gpu, ...] | Unknown = NOT_ASKED
    files: Files | Unknown = NOT_ASKED
    writes: Writes | Unknown = NOT_ASKED
    model: ModelFolder | Unknown = NOT_ASKED
    adapter: WeightFile | Unknown | None = NOT_ASKED
    starting_lora: WeightFile | Unknown | None = NOT_ASKED
    earlier: EarlierSave | Unknown | None = NOT_ASKED
    hub: Hub | Unknown = NOT_ASKED
    storage: Storage | Unknown = NOT_ASKED
    datasets: tuple[DatasetFolder, ...] | Unknown = NOT_ASKED
    room: tuple[Room, ...] | Unknown = NOT_ASKED
    memory: Memory | Unknown = NOT_ASKED
    packages: Mapping[str, str] | Unknown = field(default=NOT_ASKED)
    environment: Environment | Unknown = NOT_ASKED
    logins: tuple[str, ...] | Unknown = NOT_ASKED
    schema: Schema | Unknown = NOT_ASKED
    checkout: Checkout | Unknown | None = NOT_ASKED
    script: Script | Unknown = NOT_ASKED
    microstep: MicroStep | Unknown = NOT_ASKED
