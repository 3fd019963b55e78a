"""Which of a log's failures ended the run."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from ..model.crashes import Failure
from ..model.record import replace
from .failures import ENDS, LAUNCHERS, REPORTED, SAID
from .knowing import ABOVE, is_messenger
from .lines import Lines
from .messages import CERTAIN, CUT_OFF
from .survived import killed

# What a process says whose partner died is no cause.
_PARTNER = re.compile(
    r"NCCL (?:communicator was aborted|error: remote process exited|operation .* timed out)"
    r"|remote process exited or there was a network error|Connection (?:closed|reset) by peer|Broken pipe"
)
_WORKER = re.compile(r"Caught \w+ in DataLoader worker process")


def decisive(found: Sequence[Failure]) -> Failure:
    """The last failure with a traceback: what follows it are the launcher's words about a process that ended."""
    found = [failure for failure in found if not is_messenger(failure)] or found
    told = [
        f for f in found if (f.frames and f.name not in LAUNCHERS and f.name != CUT_OFF) or f.name == "ArgumentError"
    ]
    causes = [f for f in told if f.name == "ArgumentError" or is_cause(f)]
    if causes or told:
        return (causes or told)[-1]
    cut = max((failure.at for failure in found if failure.name == CUT_OFF), default=0)
    said = [failure.at for failure in found if failure.name == SAID]
    kinds: tuple[Callable[[Failure], bool], ...] = (
        lambda f: _alone(f) and f.at > cut and not any(f.begin <= at <= f.at for at in said),
        lambda f: f.name in (SAID, REPORTED),
        killed,
        lambda f: f.name == CUT_OFF,
    )
    for kind in kinds:
        kept = [failure for failure in found if kind(failure)]
        if kept:
            return kept[-1]
    return found[-1]


def _alone(failure: Failure) -> bool:
    """An exception without its traceback."""
    return not failure.frames and failure.name not in (*ENDS, *LAUNCHERS, SAID, REPORTED, "Interrupted", CUT_OFF)


def is_cause(failure: Failure) -> bool:
    """A traceback that speaks of itself, not of a child, a partner or a worker."""
    words = (_PARTNER.search(part.message) or _WORKER.match(part.message) for part in failure.chain)
    return bool(failure.frames) and failure.name not in LAUNCHERS and not any(words)


def named_above(lines: Lines, failure: Failure, survived: Sequence[Failure]) -> Failure:
    """A traceback without its end, with the exception that stands alone above it, as where a title goes first."""
    if failure.cause is not None or (failure.name != CUT_OFF and failure.message):
        return failure
    first = max([failure.begin - ABOVE - 1, *(one.at for one in survived if one.at < failure.begin)])
    above = lines.between(first, failure.begin)
    named = [
        said
        for line in above
        if (said := CERTAIN.match(line.strip())) is not None
        and (said["message"] or said["type"] == MemoryError.__name__)
        and failure.name in (CUT_OFF, said["type"])
    ]
    return replace(failure, type=named[-1]["type"], message=named[-1]["message"] or "") if named else failure
