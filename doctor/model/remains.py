"""What earlier runs, other programs and other runners left in the folder that a run writes to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .record import dataclass, field
from .run import Run
from .weights import WeightFile

Reason = tuple[str, dict[str, Any]]  # a template and what it needs

TAKEN = (
    "{path} was not written by zdoctor (but by {author}), and this run would write or remove files of that name. "
    "Move it away, or give the run another {name}."
)
BEGIN_WITH = " To begin with what was learnt there, give it another {name} and set {start}: {newest}."
DAMAGED = (
    "{path} is no LoRA that can be opened: it is cut off or damaged ({detail}). This run would write or remove files "
    "of that name; move it away."
)
OTHER_STATE = (
    "{path} is the state of a run with {key} {theirs}; this run has {key} {ours}. Give the run another name or "
    "output folder, or move the state away to start from step 0."
)


# A path that holds one of these is passed over where the name of the run does not (get_latest_save_path).
PASSED_OVER = ("_LoRA", "_refiner", "_t2i", "_cn")


@dataclass(frozen=True)
class EarlierSave:
    """The save that the trainer goes on from: the newest, by the time its entry was changed.

    `step` is where it was saved, None when neither the file nor its name tells. `hidden` is the part of the path or
    of the name for which the trainer does not find it, "" where it does.
    """

    weights: WeightFile
    step: int | None = None
    hidden: str = ""


def hides(path: str, name: str) -> str:
    """What in this path keeps the trainer from finding saves of this name there, "" where it finds them."""
    part = next((part for part in PASSED_OVER if part in path and part not in name), "")
    brackets = re.search(r"\[[^\]]+\]", path)  # glob takes them for one of several letters
    return part or (brackets.group() if brackets else "")


@dataclass(frozen=True)
class Save:
    """A LoRA file of the run's name: the program that wrote it, "" where none is named, and why it does not open."""

    path: str
    author: str = ""
    problem: str = ""
    modified_ns: int = 0


@dataclass(frozen=True)
class Remains:
    """`state` is the path of the state that the run goes on from, "" where there is none; `cut`: its end is missing.

    `theirs` is what it was saved for and `ours` what this run is, as far as either is known (rank, adapter, …).
    `running`: another runner has the folder now.
    """

    folder: str
    saves: tuple[Save, ...] = ()
    state: str = ""
    cut: bool = False
    theirs: Mapping[str, str] = field(default_factory=dict)
    ours: Mapping[str, str] = field(default_factory=dict)
    running: bool = False


def own_state(name: str) -> str:
    """The file from which zdoctor's own runner goes on. The dot is for ai-toolkit, which goes on from the newest
    `<name>*` of a folder, whatever that is.
    """
    return f".{name}.state.pt"


def own_identity(name: str) -> str:
    """What the state was saved for, as JSON: without PyTorch nothing can be read of the state itself."""
    return f".{name}.state.json"


def own_lock(name: str) -> str:
    """The file that a runner has open and locked while it works."""
    return f".{name}.lock"


def is_own_save(file: str, name: str) -> bool:
    """Whether the runner writes or removes files of this name."""
    return file == f"{name}.safetensors" or re.fullmatch(re.escape(name) + r"_\d{9}\.safetensors", file) is not None


def author_of(metadata: Mapping[str, Any]) -> str:
    """The program that wrote a LoRA, by the metadata of its header; "" where none is named."""
    software = metadata.get("software")
    name = software.get("name") if isinstance(software, Mapping) else None
    return name if isinstance(name, str) else ""


def taken(run: Run, saves: tuple[Save, ...]) -> Reason | None:
    """Why the run must not write beside these files, which are sorted by path."""
    for save in saves:
        if save.problem:
            return DAMAGED, {"path": save.path, "detail": save.problem}
        if save.author != "zdoctor":
            others = [one for one in saves if one.author != "zdoctor" and not one.problem]
            values = {
                "path": save.path,
                "author": save.author or "an unknown program",
                "name": run.keys.get("name", "name").rpartition("/")[2],
                "start": _START.get(run.keys.get("name", "name")),
                "newest": max(others, key=lambda one: one.modified_ns).path,
            }
            return TAKEN + BEGIN_WITH * (values["start"] is not None), values
    return None


# The key that names a LoRA to begin with, by the key that names the run: ai-toolkit's and kohya's.
_START = {"name": "network.pretrained_lora_path", "output_name": "network_weights"}


def of_another_run(path: str, theirs: Mapping[str, str], ours: Mapping[str, str]) -> Reason | None:
    """What the state at `path` was saved for and this run is not, of what is known of both."""
    for key in ours:
        if key in theirs and theirs[key] != ours[key]:
            return OTHER_STATE, {"path": path, "key": key, "theirs": theirs[key], "ours": ours[key]}
    return None
