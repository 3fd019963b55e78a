"""A file's bytes become text, with the `${VARIABLE}` substitution that ai-toolkit does before it parses."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from typing import Literal

from ..model import Problem, Where
from ..model.record import dataclass

LARGEST = 500_000
_VARIABLE = re.compile(r"\$\{([^}]+)\}")
_BREAK = re.compile(r"\r\n|\r|\n")
Format = Literal["yaml", "json", "toml", "env", "shell", "python"]
_FORMATS: Mapping[str, Format] = {".json": "json", ".jsonc": "json", ".toml": "toml", ".env": "env", ".py": "python"}
_COMMAND = re.compile(r"^[^#\n]*train\w*\.py\b[\s\S]{0,200}?[ \t]--\w", re.M)
_SHELL = (".sh", ".bash", ".ps1", ".bat", ".cmd", ".command")


def format_of(path: str, text: str = "") -> Format:
    """How a file is written, by the end of its name; what has no known end is a command, by its text, or YAML."""
    name = path.lower()
    if name.endswith(_SHELL) or (not name.endswith((*_FORMATS, ".yaml", ".yml")) and _COMMAND.search(text)):
        return "shell"
    known: list[Format] = [format for end, format in _FORMATS.items() if name.endswith(end)]
    return known[0] if known else "yaml"


@dataclass(frozen=True)
class Source:
    """A file as text. `text.encode(encoding, "surrogateescape")` gives its bytes again."""

    path: str
    text: str
    encoding: str = "utf-8"
    newline: str = "\n"
    byte_order_mark: bool = False
    problem: Problem | None = None


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


def decode(path: str, data: bytes) -> Source:
    """The text of a file. What is no text, or text that the trainer cannot decode, carries a problem."""
    if len(data) > LARGEST:
        size = f"{LARGEST // 1000} kB"
        message = f"The file has more than {size}, but a training config has a few kB: this is something else."
        return Source(path, "", problem=Problem(message, Where(path), "size"))
    for mark, encoding in ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")):
        if data.startswith(mark):
            text = data.decode(encoding, "surrogateescape" if len(data) % 2 == 0 else "replace")
            message = (
                'The file is saved as UTF-16 (Notepad\'s "Unicode"); the trainer reads UTF-8 only and would stop '
                f"with: 'utf-8' codec can't decode byte 0x{data[0]:02x} in position 0: invalid start byte"
            )
            return Source(
                path, text, encoding, newline_of(text), True, Problem(message, Where(path, 1, 1), "encoding")
            )
    text = data.decode("utf-8", "surrogateescape")
    marked = text.startswith("\ufeff")
    problem = None
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        where = Lines(path, text).where(len(data[: error.start].decode("utf-8", "surrogateescape")))
        message = (
            f"The byte 0x{data[error.start]:02x} is not UTF-8 (the file was probably saved as ANSI/Windows-1252); "
            f"the trainer would stop with: {error}"
        )
        problem = Problem(message, where, "encoding")
    if (wide := _unmarked(data)) and problem is None:
        message = (
            "The file is saved as UTF-16 (without a byte-order mark); the trainer reads UTF-8 only and would stop at "
            "the zero byte beside each letter."
        )
        text = data.decode(wide, "surrogateescape")
        return Source(path, text, wide, newline_of(text), False, Problem(message, Where(path, 1, 1), "encoding"))
    if "\0" in text:
        where = Lines(path, text).where(text.index("\0"))
        problem = Problem("The file holds NUL bytes: it is binary, not a text config.", where, "encoding")
    return Source(path, text, "utf-8", newline_of(text), marked, problem)


def _unmarked(data: bytes) -> str:
    """The UTF-16 that a text without a mark is in, "" where it is in none: most of every other byte is zero."""
    half = len(data) // 2
    for encoding, first in (("utf-16-le", 1), ("utf-16-be", 0)):
        if 0 < half == len(data) / 2 and 10 * data[first::2].count(0) > 9 * half and 0 not in data[1 - first :: 2]:
            return encoding
    return ""


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
