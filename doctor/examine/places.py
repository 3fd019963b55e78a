"""What a plan writes, so that no two of its steps and no command beside it write the same place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ..model import Finding, Fix, ReplaceText

Place = tuple[str, ...]
"""The folders down to a file and, where only a part of it is meant, `#` and the keys down to that."""


class Taken:
    """The places that are spoken for: one also when it lies in another, or another in it."""

    def __init__(self) -> None:
        self._written: set[Place] = set()
        self._above: set[Place] = set()

    def take(self, places: Iterable[Place]) -> None:
        for place in places:
            self._written.add(place)
            self._above.update(_within(place))

    def has(self, place: Place) -> bool:
        return place in self._above or not self._written.isdisjoint(_within(place))

    def any(self, places: Iterable[Place]) -> bool:
        return any(self.has(place) for place in places)


def _within(place: Place) -> Iterator[Place]:
    return (place[:length] for length in range(1, len(place) + 1))


def written_by(finding: Finding, fix: Fix) -> Iterator[Place]:
    """Every place that the steps of a fix write, or what it says to type."""
    for step in fix.steps:
        path, part = step.written
        yield place_of(path, part)
        if isinstance(step, ReplaceText) and finding.where is not None and finding.where.pointer:
            yield place_of(path, finding.where.pointer)
    if fix.target:
        yield place_of(fix.target)


def place_of(path: str, part: object = None) -> Place:
    """`part` is the pointer of a key, or the offset of a character."""
    folders = tuple(re.split(r"[/\\]+", path.rstrip("/\\")))
    if part is None:
        return folders
    return (*folders, "#", *(str(part).split("/")[1:] if isinstance(part, str) else (f"character {part}",)))
