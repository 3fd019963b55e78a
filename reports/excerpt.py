"""The line of a file that a finding is about, with a mark under the part that is meant."""

from __future__ import annotations

from collections.abc import Iterator

from ..doctor.model import Config, Where
from ..doctor.model.columns import cells
from ..doctor.model.extent import extent, lines_of
from ..doctor.model.printable import without_tokens
from ..doctor.model.said import AsIs
from .painting import Spans


def excerpt(config: Config, where: Where | None, width: int) -> Iterator[Spans]:
    """The line with its number, and the mark; nothing where the place is not known to a character."""
    meant = extent(config, where)
    if where is None or meant is None:
        return
    number_of, start, end = meant
    line = lines_of(config.file(where.path).text)[number_of]
    if 4 * sum(not one.isprintable() and one != "\t" for one in line) > len(line):
        return  # of a binary file no line is worth reading
    shown, mark = without_tokens(line.expandtabs(1)), end - start
    number = f"  {number_of + 1} | "
    room = max(width - len(number), 8)
    if cells(shown) > room:
        first = max(0, min(start - room // 3, len(shown) - room + 1))
        cut = "…" * bool(first)
        # no more of a long line than may be seen: each turn below counts all of it
        shown, start = cut + shown[first : first + 2 * room], start - first + len(cut)
        while cells(shown) > room:
            shown = shown[:-2] + "…"
    mark = cells(shown[start : start + mark]) or 1
    yield [("dim", AsIs(number)), ("", AsIs(shown))]
    under = f"{' ' * (len(number) - 2)}| "
    yield [("dim", AsIs(under)), ("bold", AsIs(" " * cells(shown[:start]) + "^" * mark))]
