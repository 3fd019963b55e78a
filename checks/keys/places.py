"""Where a key stands in the text of a config."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import lru_cache

from ...doctor.model import Config, Value, Where

FURTHEST = 4000  # characters between a key and its value, comments and line breaks included
_BEHIND_KEY = re.compile(r"[\"']?[ \t]*(?::(?:\s|$|[\[{\"'])|\+?=)")


def key_span(config: Config, value: Value) -> tuple[int, int] | None:
    """Character offsets of the key in front of a value (its quotes left out), None when it is not found."""
    pointer = value.where.pointer or ""
    name = pointer.rsplit("/", 1)[-1].replace("~1", "/").replace("~0", "~")
    file = config.file(value.where.path)
    text = file.text
    if file.format == "shell":
        options = list(re.finditer(rf"(?<=--){re.escape(name)}(?![\w-])", text[: value.end]))
        return options[-1].span() if options else None
    first, start = max(0, value.start - FURTHEST), text.rfind(name, 0, value.start)
    while start >= first:
        end = start + len(name)
        if not re.match(r"[\w.\-]", text[start - 1 : start]) and _BEHIND_KEY.match(text, end, value.start):
            return start, end
        start = text.rfind(name, 0, end - 1)
    return None


def key_where(config: Config, value: Value) -> Where:
    """The place of a value's key, for findings about the key itself."""
    span = key_span(config, value)
    if span is None:
        return value.where
    return Where(value.where.path, *place_of(config.file(value.where.path).text, span[0]), value.where.pointer)


def place_of(text: str, offset: int) -> tuple[int, int]:
    """The line and the column of a place in a text."""
    starts = _line_starts(text)
    line = bisect_right(starts, offset)
    return line, offset - starts[line - 1] + 1


@lru_cache(maxsize=4)
def _line_starts(text: str) -> list[int]:
    return [0, *(match.end() for match in re.finditer(r"\r\n|\r|\n", text))]


def line_at(config: Config, number: int | None) -> str:
    """A line of the config by its number, "" when there is none."""
    lines = re.split(r"\r\n|\r|\n", config.text)
    return lines[number - 1].lstrip("\ufeff") if number is not None and 0 < number <= len(lines) else ""
