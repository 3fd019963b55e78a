"""Bytes for people, in the units that disks are sold in."""

from __future__ import annotations


def amount(size: int) -> str:
    """`size` bytes to three digits: "1.65 MB", "999 kB", "12 bytes"."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= 0.9995 * scale:
            return f"{size / scale:.3g} {unit}"
    return f"{size} bytes"
