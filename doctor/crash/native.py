"""What a process leaves that does not end in Python: faulthandler's words, C++'s and those of node."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..model.crashes import Failure, Frame
from .messages import message

FATAL = re.compile(r"^(?:Fatal Python error|Windows fatal exception): ")
_FATAL_FRAME = re.compile(r'\s*File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<where>.+)$')
_FATAL_NAMES = (
    ("Segmentation fault", "SegmentationFault"),
    ("Bus error", "BusError"),
    ("Aborted", "Aborted"),
    ("Illegal instruction", "IllegalInstruction"),
    ("access violation", "AccessViolation"),
    ("stack overflow", "StackOverflow"),
)

TERMINATED = re.compile(r"terminate called after throwing an instance of '(?P<type>[^']+)'")
_WHAT = re.compile(r"\s*what\(\): +(?P<message>.*)$")
_NATIVE_FRAME = re.compile(r"\s*frame #\d+: (?P<where>.+?) \+ 0x[0-9a-f]+ \((?:0x[0-9a-f]+ in )?(?P<file>[^)]+)\)")
# What Python calls the exceptions of C++ that reach it; all others are a RuntimeError.
_IN_PYTHON = {
    "std::bad_alloc": "MemoryError",
    "std::out_of_range": "IndexError",
    "std::invalid_argument": "ValueError",
    "c10::OutOfMemoryError": "torch.OutOfMemoryError",
    "c10::DistBackendError": "torch.distributed.DistBackendError",
    "c10::NotImplementedError": "NotImplementedError",
}

NODE_FRAME = re.compile(r"\s*at (?:(?P<where>[^()]+) \()?(?:(?P<file>[^()]+):(?P<line>\d+):\d+|<anonymous>)\)?,?$")
_NODE_ERROR = re.compile(r"(?:.*?\s)?(?P<type>(?:[A-Z]\w*)?Error)(?: \[\w+\])?(?:: (?P<message>.*)|)$")
WORDS = ("Fatal Python error", "Windows fatal exception", "terminate called", "    at ")
MOST_BETWEEN = 12


def fatal(lines: Sequence[str], at: int) -> tuple[Failure | None, int]:
    """What faulthandler says of a process that the system ends: the last frame comes first."""
    words = lines[at].strip()
    name = next((name for word, name in _FATAL_NAMES if word in words), "")
    frames: list[Frame] = []
    begun = at
    for at in range(begun + 1, len(lines)):
        frame = _FATAL_FRAME.match(lines[at])
        if frame is not None:
            frames.insert(0, Frame(frame["file"], int(frame["line"]), frame["where"]))
        elif frames or (lines[at].strip() and "most recent call first" not in lines[at]):
            break
    return (Failure(name, words, tuple(frames), at, begin=begun + 1) if name and frames else None), at


def terminated(lines: Sequence[str], at: int) -> tuple[Failure | None, int]:
    """An exception of C++ that nothing has caught; its message may hold the stack."""
    thrown = TERMINATED.search(lines[at])
    if thrown is None:
        return None, at + 1
    if (what := _WHAT.match(lines[at][thrown.end() :])) is not None:
        return Failure(
            _IN_PYTHON.get(thrown["type"], "RuntimeError"), what["message"], (), at + 1, begin=at + 1
        ), at + 1
    what = _WHAT.match(lines[at + 1]) if at + 1 < len(lines) else None
    name = _IN_PYTHON.get(thrown["type"], "RuntimeError")
    text, end = message(lines, at + 1, what["message"]) if what is not None else ("", at + 1)
    frames = [Frame(one["file"], 0, one["where"]) for line in lines[at:end] if (one := _NATIVE_FRAME.match(line))]
    return Failure(name, text, tuple(reversed(frames)), end, begin=at + 1), end


def node(lines: Sequence[str], at: int) -> tuple[Failure | None, int]:
    """An error of node, by the first line of its stack; the message stands above, and the last call comes first."""
    end = at
    frames: list[Frame] = []
    while end < len(lines) and (frame := NODE_FRAME.match(lines[end])) is not None:
        frames.insert(0, Frame(frame["file"] or "", int(frame["line"] or 0), frame["where"] or ""))
        end += 1
    for begin in range(at - 1, max(-1, at - MOST_BETWEEN), -1):
        error = _NODE_ERROR.match(lines[begin])
        if error is not None:
            text = "\n".join([error["message"] or "", *map(str.strip, lines[begin + 1 : at])])
            return Failure(error["type"], text.strip(), tuple(frames), end, begin=begin + 1), end
    return None, max(end, at + 1)
