"""A text has lines, a format, and variables that ai-toolkit fills in before it parses."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from typing import Literal

from ..model import Problem, Where

_VARIABLE = re.compile(r"\$\{([^}]+)\}")
_BREAK = re.compile(r"\r\n|\r|\n")
Format = Literal["yaml", "json", "toml", "env", "shell", "python"]
_FORMATS: Mapping[str, Format] = {".json": "json", ".jsonc": "json", ".toml": "toml", ".env": "env", ".py": "python"}
_COMMAND = re.compile(r"^[^#\n]*(?:train|cache)\w*\.py\b[\s\S]{0,200}?[ \t]--\w", re.M)
_SHELL = (".sh", ".bash", ".ps1", ".bat", ".cmd", ".command")


def format_of(path: str, text: str = "") -> Format:
    """How a file is written, by the end of its name; what has no known end is a command, by its text, or YAML."""
    name = path.lower()
    if name.endswith(_SHELL) or (not name.endswith((*_FORMATS, ".yaml", ".yml")) and _COMMAND.search(text)):
        return "shell"
    known: list[Format] = [format for end, format in _FORMATS.items() if name.endswith(end)]
    return known[0] if known else "yaml"


class Lines:
    """Character offsets to lines and columns, both from 1; a byte-order mark is no column."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self._length = len(text)
        self._mark = text.startswith("\ufeff")
        self._starts = [0, *(match.end() for match in _BREAK.finditer(text))]

    def span(self, line: int) -> tuple[int, int]:
        """Where a line begins, behind a byte-order mark, and where the next one does."""
        start = self._starts[line - 1] or int(self._mark)
        return start, self._starts[line] if line < len(self._starts) else self._length

    def where(self, offset: int, pointer: str | None = None) -> Where:
        line = bisect_right(self._starts, offset)
        column = offset - self._starts[line - 1] + 1
        if line == 1 and self._mark:
            column = max(1, column - 1)
        return Where(self.path, line, column, pointer)


def newline_of(text: str) -> str:
    """How the first line of a text ends, as a line feed where it has only one line."""
    found = _BREAK.search(text)
    return found.group() if found else "\n"


class Expanded:
    """Text with its variables filled in, and the way back from its offsets to the original ones."""

    def __init__(self, text: str, pieces: tuple[tuple[int, int, int, int], ...] = ()) -> None:
        self.text = text
        self._pieces = pieces
        self._from = [piece[0] for piece in pieces]

    @property
    def filled_in(self) -> bool:
        """Whether it is another text than the original."""
        return bool(self._pieces)

    def origin(self, offset: int, *, end: bool = False) -> int:
        """The original offset; one inside a filled-in value gives the start (or the end) of its `${...}`."""
        index = bisect_right(self._from, offset) - 1
        if index < 0:
            return offset
        start, stop, original_start, original_stop = self._pieces[index]
        if offset >= stop:
            return offset - stop + original_stop
        return original_stop if end and offset > start else original_start


def expand(path: str, text: str, environment: Mapping[str, str]) -> Expanded | Problem:
    """Fill in every `${NAME}`, also in comments, as the trainer does. An unset one is a Problem."""
    parts: list[str] = []
    pieces: list[tuple[int, int, int, int]] = []
    done = length = 0
    # without a closing brace every "${" would be searched to the end of the text
    for match in _VARIABLE.finditer(text, 0, text.rfind("}") + 1):
        name = match.group(1)
        value = environment.get(name)
        if value is None:
            message = (
                f"The environment variable {name} is not set. The trainer fills in ${{{name}}} before it parses, "
                f"even in a comment, and would stop with: Environment variable {name} not set."
            )
            return Problem(message, Lines(path, text).where(match.start()), "environment")
        parts += (text[done : match.start()], value)
        length += match.start() - done
        pieces.append((length, length + len(value), match.start(), match.end()))
        length += len(value)
        done = match.end()
    parts.append(text[done:])
    return Expanded("".join(parts), tuple(pieces))
