"""Reading numbers out of a config.json that nobody has checked, with bounds that keep every table small."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Shapes = dict[str, tuple[int, ...]]

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


def linear(shapes: Shapes, name: str, inputs: int, outputs: int) -> None:
    """Add the weight and the bias of a Linear."""
    shapes[f"{name}.weight"] = (outputs, inputs)
    shapes[f"{name}.bias"] = (outputs,)


def bounded(tensors: int) -> None:
    """Refuse a table of more than 100 000 tensors before it is built."""
    if tensors > MOST_TENSORS:
        raise BadConfig(f"it would have {tensors} tensors")


def _integer(key: str, value: object, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadConfig(f"{key} is {str(value)[:80]!r}, not a whole number")
    if not low <= value <= high:
        raise BadConfig(f"{key} is out of range ({low} to {high})")
    return value
