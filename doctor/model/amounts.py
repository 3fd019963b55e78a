"""Amounts for people: bytes in the units that disks are sold in, and lists that are too long to read."""

from __future__ import annotations

from collections.abc import Sequence


def amount(size: int) -> str:
    """`size` bytes to three digits: "1.65 MB", "999 kB", "12 bytes"."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= 0.9995 * scale:
            return f"{size / scale:.3g} {unit}"
    return f"{size} bytes"


def few(names: Sequence[str], most: int = 4) -> str:
    """The first names, and how many more there are."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"
