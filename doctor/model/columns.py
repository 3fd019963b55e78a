"""How wide a text is on a terminal, where characters of East Asia take two columns."""

from __future__ import annotations

from functools import cache, lru_cache


def cells(text: str) -> int:
    """How many columns of a terminal a text takes: characters of East Asia are two wide, marks above others none."""
    return len(text) if text.isascii() else _cells(text)


def padded(text: str, width: int) -> str:
    """The text with blanks behind it, so many columns wide at least."""
    return text + " " * (width - cells(text))


def cut(text: str, width: int) -> str:
    """As much of the beginning of a text as fits into so many columns."""
    kept = text[:width]
    while cells(kept) > width:
        kept = kept[:-1]
    return kept


@lru_cache(4096)  # words come again, and lines are counted before they are shown
def _cells(text: str) -> int:
    return sum(map(_cells_of_one, text))


@cache
def _cells_of_one(character: str) -> int:
    from unicodedata import combining, east_asian_width

    return 0 if combining(character) else 2 if east_asian_width(character) in "WF" else 1
