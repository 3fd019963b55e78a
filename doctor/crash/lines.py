"""A log as a person read it on the screen: no escape codes, of each progress bar the last state."""

from __future__ import annotations

import re
from collections.abc import Sequence

# CSI and OSC sequences, and the two-character ones.
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]+")
LONGEST = 4000
# "[rank0]: ", "[default0]:", "worker-1  | ": what launchers put before each line, to say whose it is.
_LEAD = re.compile(r"(\[(?:rank|default)\d+\]):\s?|([\w.-]{1,40} +)\| ")
_BOX = "╭│╰┃┏┗+|"


def clean(text: str) -> list[str]:
    """The lines of a log without escape codes and control characters; each shortened to LONGEST characters."""
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    lines = _CONTROLS.sub("", text.replace("\r\n", "\n")).split("\n")
    if "\r" in text:
        lines = [line.rstrip("\r").rpartition("\r")[2] if "\r" in line else line for line in lines]
    return [line if len(line) <= LONGEST else line[:LONGEST] for line in lines]


def bare(line: str) -> str:
    """A line without what the launcher put before it."""
    return _LEAD.sub("", line, count=1) if _led(line) else line


class Stream(list[str]):
    """The lines of one process, and for each its number in the log, from 0."""

    def __init__(self, lines: Sequence[str], places: Sequence[int] | None = None) -> None:
        super().__init__(lines)
        self._places = places

    def place(self, at: int) -> int:
        return at if self._places is None else self._places[at]


def streams(lines: Sequence[str]) -> list[Stream]:
    """The log of each process. Where several write into one log, their tracebacks are mixed line by line."""
    owned: dict[str, tuple[list[str], list[int]]] = {}
    for at, line in enumerate(lines):
        if (line[:1] == "[" or " | " in line[:44]) and _led(line) and (found := _LEAD.match(line)) is not None:
            texts, places = owned.setdefault(found[1] or found[2], ([], []))
            texts.append(line[found.end() :])
            places.append(at)
    if not owned:
        return [Stream(lines)]
    apart = {at for _, places in owned.values() for at in places}
    rest = [at for at in range(len(lines)) if at not in apart]
    return [Stream([lines[at] for at in rest], rest), *(Stream(*kept) for kept in owned.values())]


def _led(line: str) -> bool:
    return line[:2] in ("[r", "[d") or (" | " in line[:44] and line[:1] not in _BOX)
