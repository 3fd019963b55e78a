"""The line of a file that a finding is about, with a mark under the part that is meant."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from ..doctor.model import Config, Where
from ..doctor.model.printable import without_tokens
from .painting import Spans, cells

_WORD = re.compile(r"""(?:"[^"]*"|'[^']*'|[^\s,#\[\]{}()=:]+)""")


def excerpt(config: Config, where: Where | None, width: int) -> Iterator[Spans]:
    """The line with its number, and the mark; nothing where the place is not known to a character."""
    if where is None or where.line is None or where.column is None:
        return
    file = config.file(where.path)
    lines = _lines(file.text)
    if file.path != where.path or where.line > len(lines) or where.column > len(lines[where.line - 1]):
        return
    line, start = lines[where.line - 1], where.column - 1
    if 4 * sum(not one.isprintable() and one != "\t" for one in line) > len(line):
        return  # of a binary file no line is worth reading
    end = start + _length(file, where, line)
    shown, mark = without_tokens(line.expandtabs(1)), end - start
    number = f"  {where.line} | "
    room = max(width - len(number), 8)
    if cells(shown) > room:
        first = max(0, min(start - room // 3, len(shown) - room + 1))
        cut = "…" * bool(first)
        # no more of a long line than may be seen: each turn below counts all of it
        shown, start = cut + shown[first : first + 2 * room], start - first + len(cut)
        while cells(shown) > room:
            shown = shown[:-2] + "…"
    mark = cells(shown[start : start + mark]) or 1
    yield [("dim", number), ("", shown)]
    yield [("dim", f"{' ' * (len(number) - 2)}| "), ("bold", " " * cells(shown[:start]) + "^" * mark)]


@lru_cache(maxsize=8)  # thousands of findings are about the same few files
def _lines(text: str) -> list[str]:
    return re.split(r"\r\n|\r|\n", text.removeprefix("\ufeff"))


def _length(file: Config, where: Where, line: str) -> int:
    """How many characters are meant: the value that begins there, as far as it is in this line, else the word."""
    value = file.values.get(where.pointer or "")
    start = (where.column or 1) - 1
    left = len(line) - start
    if value is not None and (value.where.line, value.where.column) == (where.line, where.column):
        return max(1, min(value.end - value.start, left))
    word = _WORD.match(line, start)
    return min(len(word[0]), left) if word else 1
