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

from .record import dataclass
from .run import Config, Run


@dataclass(frozen=True)
class Unknown:
    """A fact that could not be established, and why. A rule that needs it is unknown too, never passed."""

    reason: str


@dataclass(frozen=True)
class System:
    """The computer. `environment` holds only the variables that change what a trainer does, never secrets."""

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

    def join(self, *parts: str) -> str:
        """Path parts joined as this system joins them."""
        joined: str = (ntpath if self.os == "windows" else posixpath).join(*parts)
        return joined

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

    `repo` is the hub repository that the loader takes this part from, None for a plain folder on this machine.
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

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """Every tensor of every readable weight file."""
        return {name: tensor for file in self.weights for name, tensor in file.tensors.items()}


@dataclass(frozen=True)
class ModelFolder:
    """The base model as the trainer will open it.

    `source` is the config's word for it; `folder` where the files lie (the snapshot folder for a hub id), or None
    when nothing of it is on this machine; `repo` and `commit` are set when it comes from a hub cache.
    """

    source: str
    layout: Literal["diffusers", "transformer-only", "single-file", "absent"]
    folder: str | None
    components: Mapping[str, Component] = field(default_factory=dict)
    repo: str | None = None
    commit: str | None = None


@dataclass(frozen=True)
class HubFile:
    """One file that a snapshot should hold.

    `size` and `digest` ("sha256:…" or "git-sha1:…") are what it should be, from the manifest or the blob's name;
    `good_copy` is another file on this machine with the same content address and size, when this one is bad; where
    there is none, `prefix` is a (path, bytes) that should be the beginning of it: itself, cut off, or a left-over
    download.
    `blob` is where the content lies or belongs (the end of the links), None where the snapshot holds plain files.
    `needed` is false for what no trainer loads (a README, weights of another precision). `hidden` is true where the
    client noted (in .no_exist) that the repository has no such file: loaders then do not see it. `changed` is true in
    a downloaded folder where somebody wrote the file anew after the download. `verified` is true
    where the content was held against `digest`; `unread` says why it could not be, where a deep check wanted to.
    """

    name: str
    path: str
    blob: str | None
    state: Literal["ok", "missing", "dangling", "wrong-link", "wrong-size", "wrong-content", "broken-structure"]
    size: int | None
    digest: str | None
    actual_size: int | None = None
    detail: str = ""
    good_copy: str | None = None
    prefix: tuple[str, int] | None = None
    verified: bool = False
    needed: bool = True
    hidden: bool = False
    changed: bool = False
    unread: str = ""


@dataclass(frozen=True)
class HubRepo:
    """One repository of a hub cache and the snapshot the run would use; or a folder downloaded with --local-dir.

    Such a folder has no `cache`; its path stands for the name of the repository, which it does not tell. `origin` is
    the hub id that its files can be fetched from, None where nothing on this machine knows it.

    `ref` is the branch or tag asked for, `ref_state` what its ref file says; `commit` the snapshot that serves.
    `has_manifest` is true when `trees/<commit>.json` names every file. `partials` are left-over downloads
    as (path, size, alive): alive when another process may still be writing it. `complete` are those of `snapshots`
    in which no needed file is missing, the newest first. A repository of which nothing is cached has no `commit`.
    `update_of` is the complete older snapshot that the one to use was to replace, where its download was cut short
    and nothing can be linked; its files are then all listed, also those that nobody loads.
    `used_by` are the fields of the run that name it; it is empty for one that lies in a cache the run does not use.
    """

    repo: str
    cache: str
    folder: str
    ref: str
    ref_state: Literal["ok", "dangling", "malformed", "absent", "pinned"]
    ref_path: str
    ref_content: str
    commit: str | None
    snapshot: str | None
    has_manifest: bool
    files: tuple[HubFile, ...]
    partials: tuple[tuple[str, int, bool], ...] = ()
    snapshots: tuple[str, ...] = ()
    used_by: tuple[str, ...] = ()
    complete: tuple[str, ...] = ()
    update_of: str | None = None
    origin: str | None = None

    @property
    def is_folder(self) -> bool:
        """Whether it is a plain folder that the hub client filled, outside of every cache."""
        return not self.cache

    @property
    def is_unlinked(self) -> bool:
        """Whether the snapshot is gone, while the content of its files is still in the cache."""
        gone = self.update_of is None and all(file.state == "missing" for file in self.files)
        return gone and any(file.good_copy is not None for file in self.files)

    @property
    def hub_id(self) -> str | None:
        """The repository to fetch its files from, None where nobody knows."""
        return self.origin if self.is_folder else self.repo

    @property
    def usable(self) -> bool:
        """Whether every needed file is there, or can be had from another place on this machine."""
        needed = [f for f in self.files if f.needed]
        return self.commit is not None and all(f.state == "ok" or f.good_copy is not None for f in needed)


@dataclass(frozen=True)
class Hub:
    """The hub caches of this machine, with the repositories that concern the run."""

    caches: tuple[str, ...]
    repos: tuple[HubRepo, ...]
    offline: bool = False
    xet_version: str | None = None

    def repo(self, repo_id: str | None) -> HubRepo | None:
        return next((r for r in self.repos if r.repo == repo_id), None)


@dataclass(frozen=True)
class Speed:
    """How fast the files under `path` can be read. `source` names how the figures were got.

    `low` and `high` are bytes per second; `latency` seconds for a small random read, None when it was not measured.
    `device` names the disk or disks below ("nvme0n1, NVMe"), "" where the system does not say.
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


@dataclass(frozen=True)
class Image:
    path: str
    width: int
    height: int
    caption: bool


@dataclass(frozen=True)
class DatasetFolder:
    """What a dataset folder holds, as the trainer walks it.

    `unreadable` are image files that cannot be decoded, with the reason; `more` counts images that were not looked
    into. `others` counts the files of other kinds by extension, captions left out; `unlisted` the folders inside that
    could not be listed.
    """

    key: str
    path: str
    images: tuple[Image, ...]
    unreadable: Mapping[str, str] = field(default_factory=dict)
    more: int = 0
    others: Mapping[str, int] = field(default_factory=dict)
    unlisted: int = 0


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

    @property
    def peak(self) -> Phase:
        return max(self.phases, key=lambda phase: phase.total)


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
    hub: Hub | Unknown = NOT_ASKED
    storage: Storage | Unknown = NOT_ASKED
    datasets: tuple[DatasetFolder, ...] | Unknown = NOT_ASKED
    room: tuple[Room, ...] | Unknown = NOT_ASKED
    memory: Memory | Unknown = NOT_ASKED
    packages: Mapping[str, str] | Unknown = field(default=NOT_ASKED)
