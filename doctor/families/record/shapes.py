"""The tensors of a model as a table of its modules, in numbers out of a config.json that nobody has checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
