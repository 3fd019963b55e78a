"""What is TOML and not what toml 0.10.2 takes, with which the trainers read it; no newer release of it exists."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from .node import Node, Unreadable

_READER = "toml 0.10.2, with which the trainer reads it, "
_KINDS: Mapping[type, str] = {
    bool: "a switch",
    int: "a whole number",
    float: "a number with a point",
    str: "a text",
    list: "a list",
    dict: "a table",
}
_MARKED_KEY = re.compile(r"\ufeff([\w-]+)(?=[ \t]*[.=])", re.A)
_NEW_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\[ex]")


def within_limits(root: Node, text: str) -> Node:
    """The tree itself. Raises Unreadable for what that package refuses, or takes for something else."""
    stack = [(root, False)]
    while stack:
        node, listed = stack.pop()
        if isinstance(node.children, list):
            _one_kind(node.children)
        elif isinstance(node.children, dict) and not node.block and text[node.start : node.start + 1] == "{":
            _inline(node, text, listed=listed)
        elif node.style in ('"', '"""') and (found := _NEW_ESCAPE.search(text, node.start, node.end)):
            raise Unreadable(_READER + f"knows no \\{text[found.end() - 1]} in a text", found.end() - 2)
        stack += [(child, isinstance(node.children, list)) for _, child in node.items()]
    return root


def with_mark(text: str) -> Unreadable:
    """What becomes of a text that begins with a byte-order mark."""
    first = _MARKED_KEY.match(text)
    if first is None:
        return Unreadable("the file starts with a byte-order mark (BOM), which is no TOML", 0)
    told = f"takes the byte-order mark (BOM) at its beginning for a part of the first key, so {first[1]} is lost"
    return Unreadable(_READER + told, 0, "misread")


def _one_kind(entries: list[Node]) -> None:
    """A list of whole numbers and others with a point is one of two kinds."""
    for entry in entries[1:]:
        first, other = (_KINDS.get(type(one.value), "a date") for one in (entries[0], entry))
        if first != other and isinstance(entries[0].value, dict):
            raise Unreadable(
                _READER + f"leaves {other} out of a list that begins with a table", entry.start, "misread"
            )
        if first != other:
            raise Unreadable(_READER + f"takes no list that holds {first} and {other}", entry.start)


def _inline(table: Node, text: str, *, listed: bool) -> None:
    """`{a = 1}` in one line, without a comma at its end."""
    at = table.start
    for _, child in table.items():
        _in_one_line(text, at, child.start)
        at = child.end
        if isinstance(child.value, str) and re.match(r"""["']\s*,""", text[child.start : child.end]):
            raise Unreadable(_READER + "takes no text that begins with a comma between { and }", child.start)
    _in_one_line(text, at, table.end)
    if (comma := text.find(",", at, table.end)) >= 0:
        raise Unreadable(_READER + "takes no comma before the } that closes a table", comma)
    if listed and sum(_other_quotes(text[one.start : one.end]) for one in _texts(table)) % 2:
        told = "leaves out a table in a list whose texts hold an odd number of quotes; write a section of its own"
        raise Unreadable(_READER + told, table.start, "misread")


def _in_one_line(text: str, start: int, end: int) -> None:
    if (found := text.find("\n", start, end)) >= 0:
        raise Unreadable(_READER + "takes no line break between { and }", found)


def _texts(node: Node) -> Iterator[Node]:
    if isinstance(node.value, str):
        yield node
    for _, child in node.items():
        yield from _texts(child)


def _other_quotes(written: str) -> int:
    """How many quotes of the kind that does not enclose it a text holds."""
    return written.count("'" if written.startswith('"') else '"')
