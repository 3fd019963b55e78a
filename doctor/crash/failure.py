"""The failures of a log: its tracebacks, and the ends that leave none."""

from __future__ import annotations

from collections.abc import Sequence

from ..model.crashes import Failure
from ..model.record import replace
from .endings import endings
from .lines import Stream, streams
from .tracebacks import CHAINED, FATAL, START, traceback

__all__ = ["START", "failures"]


def failures(lines: Sequence[str]) -> tuple[Failure, ...]:
    """Every failure of a log, in the order in which they were printed; a chain of exceptions is one, its last."""
    found = [failure for stream in streams(lines) for failure in _tracebacks(stream)]
    return tuple(sorted([*found, *endings(lines)], key=lambda failure: failure.at))


def _tracebacks(stream: Stream) -> list[Failure]:
    found: list[Failure] = []
    read = 0
    for at in [at for at, line in enumerate(stream) if START in line or (line[:1] in "FW" and FATAL.match(line))]:
        if at < read:
            continue
        failure, read = traceback(stream, at)
        if failure is None:
            continue
        if found and _chained(stream[found[-1].at : at]):
            failure = replace(failure, cause=found.pop())
        found.append(failure)
    return [_placed(stream, failure) for failure in found]


def _chained(between: Sequence[str]) -> bool:
    """Whether the log says that two tracebacks belong together."""
    return " ".join(" ".join(between).split()).startswith(CHAINED)


def _placed(stream: Stream, failure: Failure) -> Failure:
    cause = _placed(stream, failure.cause) if failure.cause is not None else None
    return replace(failure, at=stream.place(failure.at - 1) + 1, cause=cause)
