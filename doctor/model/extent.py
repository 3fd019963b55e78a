"""Which characters of a file a place means."""

from __future__ import annotations

import re
from functools import lru_cache

from .run import Config, Where

_WORD = re.compile(r"""(?:"[^"]*"|'[^']*'|[^\s,#\[\]{}()=:]+)""")


@lru_cache(maxsize=8)  # thousands of findings are about the same few files
def lines_of(text: str) -> list[str]:
    """The lines of a text, without a byte-order mark."""
    return re.split(r"\r\n|\r|\n", text.removeprefix("\ufeff"))


def extent(config: Config, where: Where | None) -> tuple[int, int, int] | None:
    """The line, counted from 0, and the columns from and to which a place of the config or of a file beside it means.

    That is the value which begins there, as far as it is in this line, else the word. None where the place is not
    known to a character.
    """
    if where is None or where.line is None or where.column is None:
        return None
    file = config.file(where.path)
    lines = lines_of(file.text)
    if file.path != where.path or where.line > len(lines) or where.column > len(lines[where.line - 1]):
        return None
    line, start = lines[where.line - 1], where.column - 1
    value, left = file.values.get(where.pointer or ""), len(line) - start
    if value is not None and (value.where.line, value.where.column) == (where.line, where.column):
        length = max(1, min(value.end - value.start, left))
    else:
        word = _WORD.match(line, start)
        length = min(len(word[0]), left) if word else 1
    return where.line - 1, start, start + length
