"""A config file becomes text, the text a tree, the tree values with their places, for every trainer's reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..model import Config, Problem, Run, Value, Where
from ..model.record import dataclass, replace
from .node import MOST_VALUES, TOO_MANY, Node, escaped
from .text import Expanded, Lines, decode, expand, format_of
from .tree import parse

MOST_RUNS = 32


@dataclass(frozen=True)
class Reading:
    """A config and the training runs it asks for. `reason` says why there are none."""

    config: Config
    runs: tuple[Run, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class Found:
    """A file that a config names, as it lies on disk."""

    path: str
    data: bytes


Beside = Callable[[str], Found | None]
"""Finds a file by the name that a config gives it; None when it is not there. Asked for text files only."""


def nothing(name: str) -> Found | None:
    """A `Beside` that finds no file."""
    return None


def text_of(path: str, data: bytes) -> Config:
    """The file as text, not parsed yet; `problem` when it is none."""
    source = decode(path, data)
    mark, newline = source.byte_order_mark, source.newline
    return Config(
        path, source.text, None, source.problem, source.encoding, newline, mark, format_of(path, source.text)
    )


def tree_of(config: Config, variables: Mapping[str, str] | None = None) -> Node | Problem:
    """The text as a tree. `variables` fill its `${NAME}`, for a trainer that does so before it parses."""
    if config.problem is not None:
        return config.problem
    expanded = Expanded(config.text) if variables is None else expand(config.path, config.text, variables)
    if isinstance(expanded, Problem):
        return expanded
    root = parse(config.path, expanded, config.format, Lines(config.path, config.text))
    if isinstance(root, Node) and _too_many(root):
        return Problem(TOO_MANY, Where(config.path), "size")
    return root


def failed(config: Config, problem: Problem) -> Reading:
    return Reading(replace(config, problem=problem), reason=problem.message)


def wrong(config: Config, message: str, node: Node | None = None) -> Reading:
    """A text that parses and is not what the trainer takes; `node` is where that shows."""
    lines = Lines(config.path, config.text)
    where = Where(config.path, 1, 1) if node is None else lines.where(node.start)
    return failed(config, Problem(message, where, "shape"))


def values_of(root: Node, lines: Lines) -> dict[str, Value]:
    """Every value by JSON pointer, in document order."""
    made: dict[str, Value] = {}
    stack: list[tuple[str, Node]] = [("", root)]
    while stack:
        pointer, node = stack.pop()
        earlier = tuple(_value(pointer, one, lines) for one in node.earlier)
        made[pointer] = (
            replace(_value(pointer, node, lines), earlier=earlier) if earlier else _value(pointer, node, lines)
        )
        stack.extend(reversed([(f"{pointer}/{escaped(key)}", child) for key, child in node.items()]))
    del made[""]
    return made


def _value(pointer: str, node: Node, lines: Lines) -> Value:
    at = node.key[0] if node.key is not None and (node.block or node.start == node.end) else node.start
    return Value(node.value, lines.where(at, pointer), node.start, node.end, node.style)


def _too_many(root: Node) -> bool:
    """Whether anchors unfold into far more values than any config has."""
    stack, seen = [root], 0
    while stack and seen <= MOST_VALUES:
        stack.extend(child for _, child in stack.pop().items())
        seen += 1
    return seen > MOST_VALUES
