"""Expressions over a config's keys, as sizes of tensors are written: read, and computed."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from .shapes import LARGEST_SIZE, MOST_LAYERS, BadConfig

# A number, a key ("text_config.hidden_size", "patch_size[0]"), or what is computed: its operator and its parts.
Node = int | float | str | tuple[Any, ...]
_COMPUTE: Mapping[str, Callable[..., Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "int": int,
    "min": min,
    "max": max,
}
_TOKEN = re.compile(r"\d+\.\d+|\d+|[A-Za-z_][\w.]*(?:\[\d+\])?|//|[-+*/(),]")


class Numbers:
    """What expressions come to in a config; `defaults` are for what it lacks, a text being an expression again."""

    def __init__(self, config: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        self.config = config
        self.defaults = defaults
        self.known: dict[str, int] = {}

    def size(self, text: str) -> int:
        """A size of a tensor. Raises BadConfig."""
        if text not in self.known:
            value = self.value(parsed(text))
            if not isinstance(value, int) or not (1 <= value <= LARGEST_SIZE or text == "0"):
                raise BadConfig(f"{text} is {value!r}, no size from 1 to {LARGEST_SIZE}"[:200])
            self.known[text] = value
        return self.known[text]

    def count(self, text: str) -> int:
        """A number of blocks. Raises BadConfig."""
        value = self.value(parsed(text))
        if not isinstance(value, int) or not 0 <= value <= MOST_LAYERS:
            raise BadConfig(f"{text} is out of range (0 to {MOST_LAYERS})")
        return value

    def value(self, node: Node) -> Any:
        """What an expression comes to. Raises BadConfig."""
        if isinstance(node, str):
            return self.number(node)
        if not isinstance(node, tuple):
            return node
        name, *parts = node
        values = [self.value(part) for part in parts]
        if name in ("/", "//") and not values[1]:
            raise BadConfig(f"{parts[1]} is 0")
        return _COMPUTE[name](*values)

    def number(self, key: str) -> int | float:
        """The number of one key. Raises BadConfig."""
        path, _, index = key.partition("[")
        default = at(path, self.defaults, None)
        value = at(path, self.config, default)
        if isinstance(default, str):  # what it follows from where it is not written
            value = self.value(parsed(default)) if value is None or value == default else value
            default = 0
        if index and isinstance(value, list) and int(index[:-1]) < len(value):
            value, default = value[int(index[:-1])], default[0] if isinstance(default, list) and default else 0
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BadConfig(f"{key} is {str(value)[:80]!r}, not a number")
        if isinstance(value, float) and not isinstance(default, float):
            raise BadConfig(f"{key} is {value!r}, not a whole number")
        if not 0 <= value <= LARGEST_SIZE:
            raise BadConfig(f"{key} is out of range (0 to {LARGEST_SIZE})")
        return value


@cache
def parsed(text: str) -> Node:
    """An expression, read once."""
    node, rest = _sum(_TOKEN.findall(text))
    assert not rest, text
    return node


def _sum(tokens: list[str]) -> tuple[Node, list[str]]:
    node, tokens = _product(tokens)
    while tokens and tokens[0] in "+-":
        right, rest = _product(tokens[1:])
        node, tokens = (tokens[0], node, right), rest
    return node, tokens


def _product(tokens: list[str]) -> tuple[Node, list[str]]:
    node, tokens = _one(tokens)
    while tokens and tokens[0] in ("*", "/", "//"):
        right, rest = _one(tokens[1:])
        node, tokens = (tokens[0], node, right), rest
    return node, tokens


def _one(tokens: list[str]) -> tuple[Node, list[str]]:
    first, *rest = tokens
    if first == "(":
        node, rest = _sum(rest)
        return node, rest[1:]
    if rest[:1] == ["("]:
        parts: list[Node] = []
        while rest[0] != ")":
            node, rest = _sum(rest[1:])
            parts.append(node)
        return (first, *parts), rest[1:]
    return (float(first) if "." in first else int(first)) if first[0].isdigit() else first, rest


def at(path: str, config: Mapping[str, Any], default: Any) -> Any:
    """The value of "text_config.hidden_size", lists being lists."""
    value: Any = config
    for part in path.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return default
        value = value[part]
    return list(value) if isinstance(value, tuple) else value
