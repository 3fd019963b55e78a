"""Where a key stands in the text of a config."""

from __future__ import annotations

import re

from ...doctor.model import Config, Value, Where


def key_span(config: Config, value: Value) -> tuple[int, int] | None:
    """Character offsets of the key in front of a value (its quotes left out), None when it is not found."""
    pointer = value.where.pointer or ""
    name = pointer.rsplit("/", 1)[-1].replace("~1", "/").replace("~0", "~")
    pattern = re.compile(rf"(?<![\w.\-]){re.escape(name)}(?=[\"']?[ \t]*(?::(?:\s|$|[\[{{\"'])|\+?=))")
    file = config.file(value.where.path)
    text = file.text
    if file.format == "shell":
        options = list(re.finditer(rf"(?<=--){re.escape(name)}(?![\w-])", text[: value.end]))
        return options[-1].span() if options else None
    spans = [match.span() for match in pattern.finditer(text, max(0, value.start - 4000), value.start)]
    return spans[-1] if spans else None


def key_where(config: Config, value: Value) -> Where:
    """The place of a value's key, for findings about the key itself."""
    span = key_span(config, value)
    if span is None:
        return value.where
    return Where(value.where.path, *place_of(config.file(value.where.path).text, span[0]), value.where.pointer)


def place_of(text: str, offset: int) -> tuple[int, int]:
    """The line and the column of a place in a text."""
    before = text[:offset]
    return len(re.findall(r"\r\n|\r|\n", before)) + 1, offset - max(before.rfind("\n"), before.rfind("\r"))


def line_at(config: Config, number: int | None) -> str:
    """A line of the config by its number, "" when there is none."""
    lines = re.split(r"\r\n|\r|\n", config.text)
    return lines[number - 1].lstrip("\ufeff") if number is not None and 0 < number <= len(lines) else ""
