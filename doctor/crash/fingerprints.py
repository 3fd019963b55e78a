"""The words of packages as fingerprints: enough to know them again in a log, and none of their sentences.

A text with {} for each value becomes the length in bytes and the CRC-32 of each part between, "" for an empty one,
and ends in + where it goes on.
"""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

_ON = "+"
LEAST = 24
LONG = 60


def fingerprint_of(words: str, *, goes_on: bool = False) -> str:
    parts = (part.encode() for part in words.split("{}"))
    return ",".join(f"{len(part)}.{crc32(part):x}" if part else "" for part in parts) + _ON * goes_on


def length(fingerprint: str) -> int:
    """How many bytes of a text never change."""
    return sum(int(part.partition(".")[0]) for part in fingerprint.rstrip(_ON).split(",") if part)


class Message:
    """A message of a log, held against fingerprints; what is as long in several of them is hashed once."""

    def __init__(self, text: str) -> None:
        self.bytes = text.encode()
        self.places: dict[int, dict[int, list[int]]] = {}
        self.heads: dict[int, str] = {}

    def begins(self, sizes: Iterable[int]) -> list[str]:
        """What the first parts of these sizes are in the fingerprint of a text that it begins with."""
        for size in sizes:
            if size not in self.heads:
                self.heads[size] = f"{size}.{crc32(self.bytes[:size]):x}" if size else ""
        return [self.heads[size] for size in sizes if size <= len(self.bytes)]

    def fits(self, fingerprint: str, *, from_start: bool, cut: bool = False) -> bool:
        """Whether the message is a text with this fingerprint; `from_start`: one that begins with a value is none,
        unless LONG bytes of it never change.

        A message that was `cut` off may lack what comes behind its first LEAST bytes that never change.
        """
        goes_on = fingerprint.endswith(_ON)
        first, *others = fingerprint.rstrip(_ON).split(",")
        at = -1 if from_start and not first and length(fingerprint) < LONG else self._first(first)
        if at < 0:
            return False
        known = _read(first)[0]
        for number, part in enumerate(others, 1):
            after = self._last(part, at) if number == len(others) else self._after(part, at)
            after = self._after(part, at) if after < 0 and fingerprint.endswith(_ON) else after
            if after < 0:
                return cut and known >= LEAST
            at, known = after, known + _read(part)[0]
        return bool(others and not others[-1]) or at == len(self.bytes) or goes_on

    def _first(self, part: str) -> int:
        """Where the part that the message begins with ends; -1 where it is another."""
        count, wanted = _read(part)
        return count if len(self.bytes) >= count and crc32(self.bytes[:count]) == wanted else -1

    def _last(self, part: str, start: int) -> int:
        """The message's end, where such a part ends it that begins at `start` or behind it; else -1."""
        count, wanted = _read(part)
        begin = len(self.bytes) - count
        return len(self.bytes) if begin >= start and crc32(self.bytes[begin:]) == wanted else -1

    def _after(self, part: str, start: int) -> int:
        """Where the next such part ends that begins at `start` or behind it; -1 where there is none."""
        if not part:
            return start
        count, wanted = _read(part)
        if count not in self.places:
            found = self.places[count] = {}
            for at in range(len(self.bytes) - count + 1):
                found.setdefault(crc32(self.bytes[at : at + count]), []).append(at)
        return next((at + count for at in self.places[count].get(wanted, ()) if at >= start), -1)


def first_of(fingerprint: str) -> tuple[int, str]:
    """The size of the first part, and that part."""
    part = fingerprint.rstrip(_ON).partition(",")[0]
    return _read(part)[0], part


def _read(part: str) -> tuple[int, int]:
    size, _, value = part.partition(".")
    return int(size or "0"), int(value or "0", 16)
