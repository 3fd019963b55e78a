"""In which phase of a run its memory ran out."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import yaml

from ..model.crashes import Failure
from ..model.record import dataclass
from .lines import Lines

TABLE = Path(__file__).with_name("phases.yaml")
_FULL = re.compile(r"\d+%.*?\b(\d+)/\1 \[")  # a bar of what is done
_NEAR, _ABOVE = 4, 12  # lines before a failure in which it is said what goes on, and those that are looked through


@dataclass(frozen=True)
class Phase:
    """What a run does, and what it needs less memory by; each pattern is looked for as the table's head says."""

    doing: str
    helps: str
    shown: str = ""
    said: str = ""
    options: tuple[str, ...] = ()
    training: bool = False
    loading: bool = False


@cache
def phases() -> tuple[Phase, ...]:
    """The table, in its order."""
    read = yaml.safe_load(TABLE.read_bytes())
    return tuple(Phase(**{**entry, "options": tuple(entry.get("options", ()))}) for entry in read)


def of_a_step() -> tuple[str, ...]:
    """What helps a training where its phase is not told: the options of its steps."""
    return next(phase.options for phase in reversed(phases()) if phase.training)


def phase_of(failure: Failure, lines: Lines) -> Phase | None:
    """By what was said right before a failure, else by its frames, whatever is around others first."""
    above = lines.between(failure.begin - _ABOVE, failure.begin)
    said = [line.strip() for line in above if line.strip()][-_NEAR:]
    for line in reversed(said):
        if _FULL.search(line):
            break
        told = next((phase for phase in phases() if phase.said and re.search(phase.said, line)), None)
        if told is not None:
            return told
    shown = [f"{frame.file} {frame.function}( {frame.code}" for frame in failure.frames]
    return next((one for one in phases() if one.shown and any(re.search(one.shown, frame) for frame in shown)), None)
