"""Tensors of a file without a config.json, and numbers read out of their shapes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from .shapes import BadConfig


class Tensors:
    """Shapes by name; a tensor is asked for by its class's own name, and found under its other one, too."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], other: Callable[[str], str]) -> None:
        self.shapes = shapes
        self.other = other

    def has(self, name: str) -> bool:
        return name in self.shapes or self.other(name) in self.shapes

    def shape(self, rank: int, name: str) -> tuple[int, ...]:
        """The shape of the tensor, of so many dimensions. Raises BadConfig."""
        here = name if name in self.shapes else self.other(name)
        shape = self.shapes.get(here)
        if shape is None:
            raise BadConfig(f"it has no {here}")
        if len(shape) != rank or 0 in shape:
            raise BadConfig(f"{here} is {list(shape)}")
        return shape

    def count(self, pattern: str) -> int:
        """How many blocks there are: the highest number that the pattern finds, and one."""
        found = (re.match(pattern, name) for name in self.shapes)
        return 1 + max((int(next(filter(None, match.groups()))) for match in found if match), default=-1)


def split(whole: int, part: int, what: str) -> int:
    """`whole` / `part`. Raises BadConfig where that is no whole number."""
    if whole % part:
        raise BadConfig(f"a width of {whole} cannot be split into {what} of {part}")
    return whole // part


def check_axes(head: int, axes: tuple[int, ...]) -> None:
    """Refuse heads of another width than the axes of positions have together. Raises BadConfig."""
    if head != sum(axes):
        raise BadConfig(f"its heads are {head} wide; how positions are split is known for {sum(axes)}")
