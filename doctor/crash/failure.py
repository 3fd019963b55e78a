"""Tracebacks in a log, and the failures that leave none."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..model.crashes import Failure, Frame

_FRAME = re.compile(r'\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<where>.+))?\s*$')
_ERROR = re.compile(r"(?P<type>(?:[A-Za-z_]\w*\.)*[A-Z]\w*)(?:: (?P<message>.*)|:?)$")
START = "Traceback (most recent call last):"
_CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_ENDED = r"(?:exit ?code|exit(?:ed)?(?: with)?(?: code| status)?)[:=]? ?"
# A run that ends without a traceback: (what it is called here, the line that says so).
_SILENT = (
    ("Killed", re.compile(rf"^(?:\S+: line \d+: +\d+ )?Killed\b|{_ENDED}(?:137|-9)\b|SIGKILL")),
    ("SegmentationFault", re.compile(rf"Segmentation fault|SIGSEGV|{_ENDED}(?:139|-11)\b")),
    ("BusError", re.compile(rf"\bBus error\b|SIGBUS|{_ENDED}(?:135|-7)\b")),
)
MOST_MESSAGE = 40


def failures(lines: Sequence[str]) -> tuple[Failure, ...]:
    """Every failure of a log, in the order in which they were printed; a chain of exceptions is one, its last."""
    found: list[Failure] = []
    at = 0
    while at < len(lines):
        if lines[at].strip() == START:
            failure, at = _traceback(lines, at)
            if failure is None:
                continue
            before = _chained_to(lines, failure, found)
            if before is not None:
                found.remove(before)
                failure = replace(failure, cause=before)
            found.append(failure)
            continue
        found += _silent(lines[at], at)
        at += 1
    return tuple(found)


def _traceback(lines: Sequence[str], at: int) -> tuple[Failure | None, int]:
    """The traceback that begins at `at`, and where the log goes on."""
    indent = len(lines[at]) - len(lines[at].lstrip())
    frames: list[Frame] = []
    at += 1
    while at < len(lines):
        line = lines[at][indent:] if lines[at][:indent].isspace() or not indent else lines[at]
        frame = _FRAME.match(line)
        if frame is not None:
            frames.append(Frame(frame["file"], int(frame["line"]), frame["where"] or ""))
        elif line.startswith("    ") and frames and not frames[-1].code:
            frames[-1] = replace(frames[-1], code=line.strip())
        elif not line[:1].isspace():
            error = _ERROR.match(line)
            if error is None:
                return None, at
            message, end = _message(lines, at, error["message"] or "")
            return Failure(error["type"], message, tuple(frames), end), end
        at += 1
    return None, at


def _message(lines: Sequence[str], at: int, first: str) -> tuple[str, int]:
    """The text of an exception, which may go on for lines, and the number of its last line."""
    kept, end = [first], at + 1
    for line in lines[at + 1 : at + MOST_MESSAGE]:
        if not line.strip() or line.strip() in (START, *_CHAINED) or _FRAME.match(line) or "it/s]" in line:
            break
        kept.append(line.strip())
        end += 1
    return "\n".join(kept), end


def _chained_to(lines: Sequence[str], failure: Failure, found: Sequence[Failure]) -> Failure | None:
    """The exception before this one, where the log says that they belong together."""
    if not found:
        return None
    between = lines[found[-1].at : failure.at]
    joined = next((line.strip() for line in between if line.strip()), "")
    return found[-1] if joined in _CHAINED else None


def _silent(line: str, at: int) -> Iterator[Failure]:
    for name, pattern in _SILENT:
        if pattern.search(line):
            yield Failure(name, line.strip(), (), at + 1)
