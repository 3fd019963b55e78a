"""Text that is safe to show: names and values hold anything."""

from __future__ import annotations

import re

# What no terminal, page, log or parser should get from a name or value: control characters but tab and newline,
# overrides of the writing direction, halves of characters, and what is no character.
UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)


def printable(text: str) -> str:
    """`text` with a replacement character for each that is unprintable."""
    return UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)
