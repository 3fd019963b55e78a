"""The tensors of a model as a table of its modules, and numbers out of configs and files that nobody has checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Shapes = dict[str, tuple[int, ...]]
Module = Mapping[str, tuple[int, ...]]  # its tensors by the last part of their names

LARGEST_SIZE = 1 << 24
MOST_LAYERS = 4096
MOST_TENSORS = 100_000


class BadConfig(Exception):
    """A config value of the wrong type or size; the message names it."""


def size(config: Mapping[str, Any], key: str, default: int) -> int:
    """A width: 1 to 16 777 216."""
    return _integer(key, config.get(key, default), 1, LARGEST_SIZE)


def count(config: Mapping[str, Any], key: str, default: int) -> int:
    """A number of layers: 0 to 4096."""
    return _integer(key, config.get(key, default), 0, MOST_LAYERS)


def flag(config: Mapping[str, Any], key: str, default: bool) -> bool:
    value = config.get(key, default)
    if not isinstance(value, bool):
        raise BadConfig(f"{key} is {value!r}, not true or false"[:200])
    return value


def sizes(config: Mapping[str, Any], key: str, default: tuple[int, ...]) -> tuple[int, ...]:
    """A short list of widths."""
    values = config.get(key, default)
    if not isinstance(values, list | tuple) or not 1 <= len(values) <= 64:
        raise BadConfig(f"{key} is no short list of numbers")
    return tuple(_integer(key, value, 1, LARGEST_SIZE) for value in values)


def linear(inputs: int, outputs: int) -> Module:
    return {"weight": (outputs, inputs), "bias": (outputs,)}


def matrix(inputs: int, outputs: int) -> Module:
    """A Linear without bias, or an embedding of so many (`outputs`) words."""
    return {"weight": (outputs, inputs)}


def conv(inputs: int, outputs: int, kernel: int = 3) -> Module:
    return {"weight": (outputs, inputs, kernel, kernel), "bias": (outputs,)}


def norm(width: int) -> Module:
    """A LayerNorm or GroupNorm."""
    return {"weight": (width,), "bias": (width,)}


def rms_norm(width: int) -> Module:
    return {"weight": (width,)}


def tensors_of(modules: Mapping[str, Module], blocks: Mapping[str, int]) -> Shapes:
    """Name -> shape of the tensors of these modules, by their names: "attn.{to_q,to_k}" are two that are alike, and
    "layers.*.norm" is in each of the blocks of `layers`. Raises BadConfig before there are more than 100 000.
    """
    lists: dict[tuple[str, str], dict[str, tuple[int, ...]]] = {}
    for names, tensors in modules.items():
        for module in _each(names):
            before, star, after = module.partition("*")
            ends = {f"{after}.{kind}" if kind else after: shape for kind, shape in tensors.items()}
            lists.setdefault((before, star), {}).update(ends)
    numbers = {one: range(blocks[one[0][:-1]]) if one[1] else ("",) for one in lists}
    if sum(len(numbers[one]) * len(ends) for one, ends in lists.items()) > MOST_TENSORS:
        raise BadConfig(f"it would have more than {MOST_TENSORS} tensors")
    found: Shapes = {}
    for one, ends in lists.items():
        found |= {f"{one[0]}{number}{end}": shape for number in numbers[one] for end, shape in ends.items()}
    return found


def _each(names: str) -> Iterator[str]:
    """`ff` and `ff_context` of "{ff,ff_context}", as a shell has it."""
    before, _, rest = names.partition("{")
    choices, brace, after = rest.partition("}")
    if not brace:
        yield names
    for choice in choices.split(",") if brace else ():
        yield from _each(before + choice + after)


def _integer(key: str, value: object, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadConfig(f"{key} is {str(value)[:80]!r}, not a whole number")
    if not low <= value <= high:
        raise BadConfig(f"{key} is out of range ({low} to {high})")
    return value


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
