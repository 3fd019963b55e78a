"""Whether a run went on after a failure: bars that moved, losses, or the words with which a run ends well."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..model.crashes import Failure
from .failures import ENDS, LAUNCHERS, SAID, tried
from .lines import Lines

# What is told of an exception that ended nothing: of a thread's, a callback's, or of one at the interpreter's end.
_ASIDE = re.compile(
    r"\bException ignored (?:in|on|while)\b|--- Logging error ---|Exception in callback "
    r"|exception was never retrieved",
)
# With these a run ends well.
_DONE = re.compile(
    r"model saved\b|\b[1-9]\d* completed jobs?\b|Model weights saved in|Wrote pipeline to disk"
    r"|[Tt]raining (?:is )?(?:complete|finished|done)"
)
# Bars of what comes before a training's steps.
READING = re.compile(r"^(?:Loading|Map|Fetching|Downloading|Generating|Filter|caching)\b|examples/s|[kMG]?B/s\]")
_BAR = re.compile(r"(\d+)/(\d+) \[")
_LOSS = re.compile(r"\bloss\b", re.I)
_DIGIT = re.compile(r"\d")
_WHILE = 50


def outlived(failure: Failure, found: Sequence[Failure], lines: Lines) -> bool:
    """Whether the run went on after a failure.

    Where a launcher gave up later, other processes may have gone on for a while, so that takes many of them.
    """
    if failure.name == SAID:
        return False
    if tried(failure):
        return True
    if _ASIDE.search("\n".join(lines.between(failure.begin - 3, failure.begin + 1))):
        return True
    if _final(failure):
        return went_on(lines.between(failure.at), _WHILE)
    ends = (other for other in found if other.at > failure.at and _final(other))
    end = next((end for end in ends if not went_on(lines.between(end.at), _WHILE)), None)
    needed = _WHILE if end is not None and end.name in LAUNCHERS else 1
    return went_on(lines.between(failure.at, end.at if end is not None else None), needed)


def _final(failure: Failure) -> bool:
    """What comes last: a process that the system ended, or a launcher that gives up."""
    return failure.name in LAUNCHERS or killed(failure)


def went_on(lines: Sequence[str], needed: int) -> bool:
    """Whether these lines show that many steps of a training, or (1) the words with which one ends well."""
    return _progress(lines, needed) >= needed


def _progress(lines: Sequence[str], needed: int) -> int:
    """How many steps these lines show, as far as `needed`."""
    states: dict[str, int] = {}
    losses: set[str] = set()
    steps = 0
    for line in lines:
        bar = _BAR.search(line) if "/" in line else None
        if bar is not None:
            steps += max(0, int(bar[1]) - states.get(bar[2], int(bar[1])))
            states[bar[2]] = int(bar[1])
        elif ("oss" in line or "OSS" in line) and _LOSS.search(line) and _DIGIT.search(line):
            steps += line not in losses and bool(losses)
            losses.add(line)
        elif needed == 1 and _DONE.search(line):
            steps += 1
        if steps >= needed:
            break
    return steps


def killed(failure: Failure) -> bool:
    """A process that the system ended."""
    return not failure.frames and failure.name in ENDS
