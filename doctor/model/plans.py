"""Repairs as data. A Fix is a list of Steps; `doctor/apply` is the only reader that acts on them."""

from __future__ import annotations

from typing import Any, Literal

from .hub import HubRepo
from .record import dataclass

Safety = Literal["safe", "ask", "show"]
TrainingEffect = Literal["none", "equivalent", "changes-result"]
TRAINING_EFFECTS: tuple[TrainingEffect, ...] = ("none", "equivalent", "changes-result")


class _Step:
    """What every step has: the path that it writes to, and what it reads."""

    path: str
    source: str = ""

    @property
    def written(self) -> tuple[str, object]:
        """What no other step of a plan writes: the file or folder, and the key or character where that is all."""
        return self.path, None

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.source,) if self.source else ()


@dataclass(frozen=True)
class SetValue(_Step):
    """Give a config key a value by rewriting only its own characters, or insert the key into its section."""

    path: str
    pointer: str
    value: Any

    @property
    def written(self) -> tuple[str, object]:
        return self.path, self.pointer


@dataclass(frozen=True)
class ReplaceText(_Step):
    """Replace the characters `start:end` of a text file, which must read `old`, by `new`."""

    path: str
    start: int
    end: int
    old: str
    new: str

    @property
    def written(self) -> tuple[str, object]:
        return self.path, self.start


@dataclass(frozen=True)
class CopyItem:
    """One file of an extraction: `name` relative to the target; `digest` as in HubFile, None when unknown."""

    source: str
    name: str
    size: int
    digest: str | None = None


@dataclass(frozen=True)
class ExtractFiles(_Step):
    """Copy files into a plain folder, each verified while it is copied (reflink where the file system can).

    `hardlink`: give the cache's own files second names there instead, each verified before.
    """

    path: str
    items: tuple[CopyItem, ...]
    hardlink: bool = False

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(item.source for item in self.items)


@dataclass(frozen=True)
class MirrorFolder(_Step):
    """A writable folder of links to every file below `source` (copies where links are refused)."""

    source: str
    path: str


@dataclass(frozen=True)
class Quarantine(_Step):
    """Move a file out of the way, beside where it lies, so that it can be put back."""

    path: str


@dataclass(frozen=True)
class WriteText(_Step):
    """Write a small text file (a ref). `before` is what it holds now, where the difference is worth showing."""

    path: str
    text: str
    before: str | None = None


@dataclass(frozen=True)
class MakeLink(_Step):
    """Put a symbolic link at `path` to `target` (relative, as the hub writes it)."""

    path: str
    target: str


@dataclass(frozen=True)
class PlaceCopy(_Step):
    """Put a verified copy of `source` at `path`; what is there goes into quarantine first.

    `link`: both belong to the same cached repository, whose files nobody changes in place, so a second name for
    the same bytes will do. It is verified all the same, and copied where the file system refuses hard links.
    """

    path: str
    source: str
    size: int
    digest: str | None
    link: bool = False


@dataclass(frozen=True)
class FetchFile(_Step):
    """Download exactly one file of a repository through huggingface_hub, and verify it.

    `prefix` is a file of `prefix_size` bytes on this machine that should be the beginning of it: only the rest is
    downloaded then. The digest, without which this is not done, decides; where it is wrong, the whole file follows.
    """

    repo: str
    revision: str
    filename: str
    path: str
    size: int | None
    digest: str | None
    prefix: str | None = None
    prefix_size: int = 0

    @property
    def sources(self) -> tuple[str, ...]:
        return () if self.prefix is None else (self.prefix,)


def note_of(repo: HubRepo) -> tuple[CopyItem, ...]:
    """The hub client's list of files, which goes along where the client itself keeps it in a plain folder: with it
    the copy can be verified for as long as it lies there. The last item, so that it is not older than the files."""
    if repo.manifest is None:
        return ()
    path, size, digest = repo.manifest
    return (CopyItem(path, f".cache/huggingface/trees/{repo.commit}.json", size, digest),)


@dataclass(frozen=True)
class InstallPackages(_Step):
    """Bring a package of the virtual environment at `path` to what is `wanted` ("scipy==1.12.0"), with what it needs.

    `python` is the environment's interpreter, `index` the address of another index than pip's own. Steps of one
    environment and index are carried out together.
    """

    path: str
    python: str
    wanted: str
    index: str = ""

    @property
    def written(self) -> tuple[str, object]:
        return self.path, f"/{self.wanted}"


@dataclass(frozen=True)
class MakeEnvironment(_Step):
    """Make a virtual environment of a release of Python ("3.12") at `path`, with what is `wanted`, as pip takes it.

    `first` comes before it from the index at the address `index`, as torch for a card does. `exact`: with nothing
    that is not named here. At the end the modules are imported.
    """

    path: str
    release: str
    wanted: tuple[str, ...]
    first: tuple[str, ...] = ()
    index: str = ""
    exact: bool = False
    modules: tuple[str, ...] = ()


@dataclass(frozen=True)
class CopiedTensor:
    """One tensor of a new file: `name` there, `source` in the old one, of which it has these `rows` (None: all).

    `number` makes it a new one that holds that number alone.
    """

    name: str
    source: str
    rows: tuple[int, int] | None = None
    number: float | None = None


@dataclass(frozen=True)
class WriteTensors(_Step):
    """Write a new safetensors file of tensors of another, which has `size` bytes; `changes` says what is other."""

    path: str
    source: str
    size: int
    tensors: tuple[CopiedTensor, ...]
    metadata: tuple[tuple[str, str], ...] = ()
    changes: tuple[str, ...] = ()


Step = (
    SetValue
    | ReplaceText
    | ExtractFiles
    | MirrorFolder
    | Quarantine
    | WriteText
    | MakeLink
    | PlaceCopy
    | FetchFile
    | InstallPackages
    | MakeEnvironment
    | WriteTensors
)


@dataclass(frozen=True)
class Fix:
    """One way to cure one finding. `title` is what a user reads; `command` is what to type when we do not apply it.

    `order` places it among the others: 0 files of a cache, 1 folders built from them, 2 the config that names them.
    `source` is the folder that the command copies, `target` what it writes to, "" where it is none of this machine.
    """

    title: str
    steps: tuple[Step, ...]
    safety: Safety = "safe"
    training_effect: TrainingEffect = "none"
    rule: str = ""
    order: int = 2
    command: str = ""
    source: str = ""
    target: str = ""


@dataclass(frozen=True)
class Plan:
    """What would be done (`fixes`), and what is only shown (`shown`): it needs a person's decision."""

    config: str
    fixes: tuple[Fix, ...] = ()
    shown: tuple[Fix, ...] = ()

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(step for fix in self.fixes for step in fix.steps)
