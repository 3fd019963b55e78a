"""One module for each kind of step. A new kind is a record in doctor/model/plans.py, a module here and a line below.

What a step writes to is its `path`; how it is taken back is known to the actions it is made of.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from ...model import (
    ExtractFiles,
    FetchFile,
    MakeLink,
    MirrorFolder,
    PlaceCopy,
    Plan,
    Quarantine,
    ReplaceText,
    SetValue,
    Step,
    WriteText,
)
from ..actions.paths import at, behind
from . import edit_text, extract_files, fetch_file, make_link, mirror_folder, place_copy, quarantine, write_text
from .needs import Needs, Work

_ADDRESS = re.compile(r"\b([0-9a-f]{8})(?:[0-9a-f]{32}|[0-9a-f]{56})\b")


class Kind(Protocol):
    """What is known of a kind of step; `step` is a record of that kind, `path` where it writes, links resolved."""

    def describe(self, step: Any) -> str:
        """The step as one line for a person."""
        ...

    def precheck(self, step: Any, path: Path, needs: Needs) -> None:
        """Tell `needs` what the step needs; raise ApplyError for what stands against it."""

    def perform(self, steps: Sequence[Any], path: Path, work: Work) -> None:
        """Carry out one group of `ordered`, by actions, which the journal announces."""


KINDS: dict[type[Step], Kind] = {
    SetValue: edit_text,
    ReplaceText: edit_text,
    ExtractFiles: extract_files,
    MirrorFolder: mirror_folder,
    Quarantine: quarantine,
    WriteText: write_text,
    MakeLink: make_link,
    PlaceCopy: place_copy,
    FetchFile: fetch_file,
}


def describe(step: Step) -> str:
    """The step as one line for a person; content addresses and commits are shortened as git does."""
    return _ADDRESS.sub(r"\1…", KINDS[type(step)].describe(step))


def ordered(plan: Plan) -> tuple[tuple[Step, ...], ...]:
    """The plan as groups, each carried out at once: all edits of one file together, where the last of them stands."""
    groups: dict[object, tuple[Step, ...]] = {}
    for number, step in enumerate(plan.steps):
        key = behind(at(step.path)) if isinstance(step, SetValue | ReplaceText) else number
        groups[key] = (*groups.pop(key, ()), step)
    return tuple(groups.values())
