"""A text of any format as a tree of values with their places in it.

The tree is what the trainer sees after its JSON round trip, so every key is a string.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from ..model.record import dataclass, replace

DEEPEST = 60
MOST_VALUES = 5000
TOO_DEEP = "the file is nested too deeply to be a training config"
TOO_MANY = "The file unfolds to far more values than it has characters."


@dataclass(frozen=True)
class Node:
    """A value and its place. `start:end` is its source without anchor and tag; `key` the span of its key.

    `style` is as in model.Value; `flow` is true inside `{}` or `[]`, `block` for a collection that is laid out in
    lines; `alias` when the source is `*name`, `merged` when it came through `<<` and is written elsewhere.
    `earlier` are the nodes that the same key had before in its mapping; the last one counts.
    """

    value: Any
    start: int
    end: int
    style: str | None = ""
    key: tuple[int, int] | None = None
    children: dict[str, Node] | list[Node] | None = None
    flow: bool = False
    block: bool = False
    alias: bool = False
    merged: bool = False
    earlier: tuple[Node, ...] = ()

    def child(self, name: str) -> Node | None:
        """The child of that name; of a list the one at that index."""
        if isinstance(self.children, dict):
            return self.children.get(name)
        listed = self.children is not None and name.isdecimal() and int(name) < len(self.children)
        return self.children[int(name)] if listed and self.children is not None else None

    def items(self) -> Iterator[tuple[str, Node]]:
        if isinstance(self.children, dict):
            yield from self.children.items()
        elif self.children is not None:
            yield from ((str(index), child) for index, child in enumerate(self.children))


def holding(node: Node, children: dict[str, Node] | list[Node]) -> Node:
    """A mapping or list with these children, whose values are its own."""
    if isinstance(children, dict):
        return replace(node, value={name: child.value for name, child in children.items()}, children=children)
    return replace(node, value=[child.value for child in children], children=children)


def most_values(text: str) -> int:
    """More values than this a text cannot hold, unless its anchors unfold to more of them than it has characters."""
    return max(MOST_VALUES, len(text))


def escaped(key: str) -> str:
    """A key as a part of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def overwritten(last: Node | None) -> tuple[Node, ...]:
    """The nodes of a key that one more of the same name replaces."""
    return () if last is None else (*last.earlier, replace(last, earlier=()))


class Unreadable(Exception):
    """Why a text is no tree; `offset` is in the original text, `kind` that of a Problem."""

    def __init__(self, message: str, offset: int, kind: Literal["syntax", "size", "misread"] = "syntax") -> None:
        super().__init__(message)
        self.offset = offset
        self.kind: Literal["syntax", "size", "misread"] = kind


def named(node: Node, name: str) -> Node:
    """The tree with every `[name]` filled in, as the trainer does after parsing."""
    if isinstance(node.children, dict):
        children = node.children.items()
        return holding(node, {key.replace("[name]", name): named(child, name) for key, child in children})
    if isinstance(node.children, list):
        return holding(node, [named(child, name) for child in node.children])
    return replace(node, value=node.value.replace("[name]", name)) if isinstance(node.value, str) else node
