"""Repairs as data. A Fix is a list of Steps; `doctor/apply` is the only reader that acts on them."""

from __future__ import annotations

from typing import Any, Literal

from .hub import HubRepo
from .record import dataclass

Safety = Literal["safe", "ask", "show"]
TrainingEffect = Literal["none", "equivalent", "changes-result"]


@dataclass(frozen=True)
class SetValue:
    """Give a config key a value by rewriting only its own characters, or insert the key into its section."""

    path: str
    pointer: str
    value: Any


@dataclass(frozen=True)
class ReplaceText:
    """Replace the characters `start:end` of a text file, which must read `old`, by `new`."""

    path: str
    start: int
    end: int
    old: str
    new: str


@dataclass(frozen=True)
class CopyItem:
    """One file of an extraction: `name` relative to the target; `digest` as in HubFile, None when unknown."""

    source: str
    name: str
    size: int
    digest: str | None = None


@dataclass(frozen=True)
class ExtractFiles:
    """Copy files into a plain folder, each verified while it is copied (reflink where the file system can).

    `hardlink`: give the cache's own files second names there instead, each verified before.
    """

    path: str
    items: tuple[CopyItem, ...]
    hardlink: bool = False


@dataclass(frozen=True)
class MirrorFolder:
    """A writable folder of links to every file below `source` (copies where links are refused)."""

    source: str
    path: str


@dataclass(frozen=True)
class Quarantine:
    """Move a file out of the way, beside where it lies, so that it can be put back."""

    path: str


@dataclass(frozen=True)
class WriteText:
    """Write a small text file (a ref)."""

    path: str
    text: str


@dataclass(frozen=True)
class MakeLink:
    """Put a symbolic link at `path` to `target` (relative, as the hub writes it)."""

    path: str
    target: str


@dataclass(frozen=True)
class PlaceCopy:
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
class FetchFile:
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


def note_of(repo: HubRepo) -> tuple[CopyItem, ...]:
    """The hub client's list of files, which goes along where the client itself keeps it in a plain folder: with it
    the copy can be verified for as long as it lies there. The last item, so that it is not older than the files."""
    if repo.manifest is None:
        return ()
    path, size, digest = repo.manifest
    return (CopyItem(path, f".cache/huggingface/trees/{repo.commit}.json", size, digest),)


Step = (
    SetValue | ReplaceText | ExtractFiles | MirrorFolder | Quarantine | WriteText | MakeLink | PlaceCopy | FetchFile
)


def written_by(step: Step) -> tuple[str, object]:
    """What a step writes: the file or folder, and its key or character where that is all. None writes what another
    of the same plan does."""
    if isinstance(step, SetValue):
        return step.path, step.pointer
    return step.path, step.start if isinstance(step, ReplaceText) else None


@dataclass(frozen=True)
class Fix:
    """One way to cure one finding. `title` is what a user reads; `command` is what to type when we do not apply it.

    `order` places it among the others: 0 files of a cache, 1 folders built from them, 2 the config that names them.
    """

    title: str
    steps: tuple[Step, ...]
    safety: Safety = "safe"
    training_effect: TrainingEffect = "none"
    rule: str = ""
    order: int = 2
    command: str = ""


@dataclass(frozen=True)
class Plan:
    """What would be done (`fixes`), and what is only shown (`shown`): it needs a person's decision."""

    config: str
    fixes: tuple[Fix, ...] = ()
    shown: tuple[Fix, ...] = ()

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(step for fix in self.fixes for step in fix.steps)
