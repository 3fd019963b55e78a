"""What was seen of the world. Frozen records, keyed by the words of the config; sizes are bytes, paths strings.

Nothing here looks: `doctor/probe` fills these in, and a rule reads them.
"""

from __future__ import annotations

import ntpath
import posixpath
from collections.abc import Mapping
from typing import Literal

from .checkout import Checkout
from .datasets import DatasetFolder
from .environment import Environment, Installed
from .host import Host
from .hub import Hub, HubAnswer, HubClient
from .lora import Lora, LoraValues
from .memory import Memory
from .record import dataclass, field
from .remains import EarlierSave, Remains
from .run import Config, Run
from .schema import Schema
from .script import MicroStep, Script
from .shell import Shell
from .start import Start
from .storage import Room, Storage
from .unknown import Unknown
from .weights import ModelFolder, WeightFile


@dataclass(frozen=True)
class System:
    """The computer. `environment` holds only the variables that change what a trainer does, never secrets.

    `interpreter` is the Python that looks, "" where it is not known; `machine` the kind of processor ("x86_64").
    `contained`: its memory is what a control group leaves (a container's limit). `swap` is that on its disks, None
    where it is not known. `libc` is the C library of a Linux ("glibc 2.36", "musl"), "" where it is not known.
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
    machine: str = ""
    typed_in: Shell | None = None
    contained: bool = False
    swap: int | None = None
    libc: str = ""

    @property
    def shell(self) -> Shell:
        """The shell that commands are typed into: the one that zdoctor was started from, else the usual one."""
        return self.typed_in or ("powershell" if self.os == "windows" else "sh")

    @property
    def is_wsl(self) -> bool:
        """Whether this Linux is a guest of Windows (its kernel's name says so)."""
        return self.os == "linux" and "microsoft" in self.release.lower()

    def join(self, *parts: str) -> str:
        """Path parts joined as this system joins them."""
        joined: str = (ntpath if self.os == "windows" else posixpath).join(*parts)
        return joined

    def absolute(self, path: str) -> str:
        """A path from the working directory on, without `..` in it."""
        flavour = ntpath if self.os == "windows" else posixpath
        return str(flavour.normpath(flavour.join(self.cwd, path)))

    def is_inside(self, path: str, folder: str) -> bool:
        """Whether an absolute path lies in a folder, or is it; Windows and macOS do not tell cases apart."""
        flavour = ntpath if self.os == "windows" else posixpath
        path, folder = (flavour.normpath(one if self.os == "linux" else one.lower()) for one in (path, folder))
        return path == folder or path.startswith(folder.rstrip(flavour.sep) + flavour.sep)

    def shown(self, path: str) -> str:
        """A path with slashes of one kind; one of Windows may have both."""
        return path.replace("/", "\\") if self.os == "windows" or path[1:3] in (":\\", ":/") else path

    def base(self, path: str) -> str:
        """The last part of a path, a trailing separator ignored."""
        name: str = (ntpath if self.os == "windows" else posixpath).basename(path.rstrip("/\\"))
        return name


@dataclass(frozen=True)
class Gpu:
    """One card. `source` says how the numbers were got ("measured: NVML", "recorded: …").

    `index` is NVML's, `uuid` "" where it is not known. `unified`: its memory is the computer's own. `driver_model` is
    what Windows drives it by ("WDDM", "TCC", "MCDM"), "" elsewhere and where it is not known. `gfx` is the
    architecture of a card of AMD ("gfx1100").
    """

    index: int
    name: str
    memory_total: int
    memory_free: int
    capability: tuple[int, int] | None
    driver: str
    source: str
    uuid: str = ""
    unified: bool = False
    driver_model: str = ""
    maker: Literal["nvidia", "amd"] = "nvidia"
    gfx: str = ""


MOST_CHILDREN = 2000  # names that are listed of a folder


@dataclass(frozen=True)
class Entry:
    """What lies at a path. A link is followed: `kind` is that of its target, `dangling` when there is none.

    `seen_from` is a folder above the config from which a relative path leads somewhere that is missing from here.
    """

    path: str
    kind: Literal["file", "folder", "missing", "dangling", "other", "denied"]
    size: int = 0
    children: tuple[str, ...] = ()
    seen_from: str = ""

    @property
    def is_gone(self) -> bool:
        return self.kind in ("missing", "dangling")


@dataclass(frozen=True)
class Files:
    """The entries behind the paths of a run, by the path as it is written in the config."""

    entries: Mapping[str, Entry]

    @property
    def is_empty(self) -> bool:
        """Whether the config names no path."""
        return not self.entries

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

    @property
    def is_empty(self) -> bool:
        return not self.places


NOT_ASKED = Unknown("not looked at")


@dataclass(frozen=True)
class Facts:
    """All that is known. A rule's parameters are names of these fields."""

    config: Config | Unknown = NOT_ASKED
    run: Run | Unknown = NOT_ASKED
    system: System | Unknown = NOT_ASKED
    gpus: tuple[Gpu, ...] | Unknown = NOT_ASKED
    files: Files | Unknown = NOT_ASKED
    elsewhere: str | Unknown = NOT_ASKED
    writes: Writes | Unknown = NOT_ASKED
    model: ModelFolder | Unknown = NOT_ASKED
    adapter: WeightFile | Unknown | None = NOT_ASKED
    starting_lora: WeightFile | Unknown | None = NOT_ASKED
    start: Start | Unknown | None = NOT_ASKED
    earlier: EarlierSave | Unknown | None = NOT_ASKED
    remains: Remains | Unknown = NOT_ASKED
    hub: Hub | Unknown = NOT_ASKED
    client: HubClient | Unknown = NOT_ASKED
    answers: Mapping[str, HubAnswer] | Unknown = NOT_ASKED
    storage: Storage | Unknown = NOT_ASKED
    datasets: tuple[DatasetFolder, ...] | Unknown = NOT_ASKED
    room: tuple[Room, ...] | Unknown = NOT_ASKED
    memory: Memory | Unknown = NOT_ASKED
    packages: Mapping[str, str] | Unknown = NOT_ASKED
    host: Host | Unknown = NOT_ASKED
    environment: Environment | Unknown = NOT_ASKED
    installed: Installed | Unknown = NOT_ASKED
    logins: tuple[str, ...] | Unknown = NOT_ASKED
    schema: Schema | Unknown = NOT_ASKED
    checkout: Checkout | Unknown | None = NOT_ASKED
    script: Script | Unknown = NOT_ASKED
    microstep: MicroStep | Unknown = NOT_ASKED
    lora: Lora | Unknown = NOT_ASKED
    lora_values: LoraValues | Unknown = NOT_ASKED
