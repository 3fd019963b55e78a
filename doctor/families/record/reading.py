"""Tensors of a file without a config.json, and numbers read out of their shapes."""

from __future__ import annotations

import re
from collections.abc import Mapping

from .shapes import BadConfig


class Tensors:
    """Shapes by name; a tensor is asked for by all the names that it may have."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.shapes = shapes

    def has(self, *names: str) -> bool:
        return any(name in self.shapes for name in names)

    def shape(self, rank: int, *names: str) -> tuple[int, ...]:
        """The shape of the tensor, of so many dimensions. Raises BadConfig."""
        name = next((name for name in names if name in self.shapes), None)
        if name is None:
            raise BadConfig(f"it has no {names[-1]}")
        shape = self.shapes[name]
        if len(shape) != rank or 0 in shape:
            raise BadConfig(f"{name} is {list(shape)}")
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
