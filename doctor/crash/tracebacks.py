"""The tracebacks of one process: Python's own, with their head or without, and those of panels, cells and C++."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..model.crashes import Failure, Frame
from ..model.record import replace
from . import native, panels
from .lines import IS_BAR, Lines
from .messages import CERTAIN, CHAINED, CUT_OFF, ERROR, message
from .reading import START
from .streams import FRAME

MOST_LINES = 4000
MOST_BETWEEN = 12
MOST_CUT = 1  # lines behind the head of a traceback that was cut off before its first frame was whole
# A frame of whose line the log has only the beginning.
_BROKEN = re.compile(r'\s*File "(?P<file>[^"]{4,})(?:", line \d*)?$')
# Frames after these are of no exception.
_STACK = re.compile(r"Stack \(most recent call last\)|Call stack:")
# Below a line of code: what of it failed, and how often a frame came.
_MARKS = re.compile(r"[~^\s]+$|\[Previous line repeated \d+ more times?\]$|\.\.\.<\d+ lines>\.\.\.$")


def tracebacks(lines: Lines) -> list[Failure]:
    """Every traceback, in order; a chain of exceptions is one failure, its last."""
    found: list[Failure] = []
    read = 0
    for at in lines.holding(START, 'File "', panels.POINTER, *native.WORDS):
        if at < read:
            continue
        failure, end = _traceback(lines, at)
        read = max(end, at + 1)
        if failure is None:
            continue
        between = " ".join(lines[found[-1].at : failure.begin - 1]) if found else ""
        if " ".join(between.split()).startswith(CHAINED):
            failure = replace(failure, cause=found.pop())
        found.append(failure)
    return [_numbered(lines, failure) for failure in found]


def _numbered(lines: Lines, failure: Failure) -> Failure:
    """With the numbers of the log for the places in these lines."""
    cause = _numbered(lines, failure.cause) if failure.cause is not None else None
    begin, at = (lines.numbers[place - 1] for place in (failure.begin, failure.at))
    return replace(failure, begin=begin, at=at, cause=cause)


def _traceback(lines: Lines, at: int) -> tuple[Failure | None, int]:
    """The traceback at `at`, and where the log goes on. None where the line only speaks of one."""
    line = lines[at]
    if native.FATAL.search(line):
        return native.fatal(lines, at)
    if native.TERMINATED.search(line):
        return native.terminated(lines, at)
    if native.NODE_FRAME.match(line):
        return native.node(lines, at)
    if panels.CELL.match(line):
        return panels.cell(lines, at)
    if panels.PANEL.match(line) or panels.POINTER in line:
        return panels.panel(lines, at)
    if START in line or FRAME.match(line):
        return _python(lines, at)
    return None, at + 1


def _python(lines: Sequence[str], begin: int) -> tuple[Failure | None, int]:
    """A traceback that begins with its head or, where that is cut off, with a frame."""
    headed = START in lines[begin]
    frames: list[Frame] = []
    between, indented = 0, True
    at = begin + headed
    end = min(len(lines), begin + MOST_LINES)
    while at < end and between <= MOST_BETWEEN:
        text = lines[at].strip()
        frame = FRAME.match(lines[at])
        if frame is not None:
            frames.append(Frame(frame["file"], int(frame["line"]), frame["where"] or ""))
            between, indented = 0, lines[at][:1].isspace()
        elif START in text or text in CHAINED:
            break
        elif text and frames and not _MARKS.match(text) and not IS_BAR.search(text):
            if (error := _error(lines[at], not between and (indented or frames[-1].code != ""))) is not None:
                if not headed and (error["type"].endswith("Warning") or _of_stack(lines, begin)):
                    return None, at + 1
                text, at = message(lines, at, error["message"] or "")
                return Failure(error["type"], text, tuple(frames), at, begin=begin + 1), at
            if not frames[-1].code:
                frames[-1] = replace(frames[-1], code=text)
            else:
                between += not lines[at][:1].isspace()
        elif text and not frames:
            between += 1
        at += 1
    if at == len(lines) and lines and (broken := _BROKEN.match(lines[-1])) is not None and (headed or frames):
        frames.append(Frame(broken["file"], 0, ""))
    if (
        headed
        and begin
        and not frames
        and lines[begin].strip().startswith(START)
        and at == end == len(lines)
        and between <= MOST_CUT
    ):
        return Failure(CUT_OFF, "", (), at, begin=begin + 1), at
    if not frames or not (headed or (at == len(lines) and not _of_stack(lines, begin))):
        return None, at if frames else begin + 1
    return Failure(CUT_OFF, "", tuple(frames), at, begin=begin + 1), at


def _error(line: str, expected: bool) -> re.Match[str] | None:
    """The exception that a line names; where none is expected, only what can be nothing else."""
    if line.startswith("   "):
        return None
    return CERTAIN.match(line.strip()) or (ERROR.match(line) if expected else None)


def _of_stack(lines: Sequence[str], at: int) -> bool:
    return any(_STACK.search(line) for line in lines[max(0, at - 2) : at])
