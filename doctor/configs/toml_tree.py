"""TOML as a tree: tomlkit decides what is TOML and what it says, this finds the places.

What the trainers' own, older reader does not take is refused (`toml_limits.py`).
"""

from __future__ import annotations

import re
from typing import Any

import tomlkit
from tomlkit.exceptions import ParseError, TOMLKitError

from ..model.record import replace
from .node import DEEPEST, TOO_DEEP, Node, Unreadable, holding
from .text import Expanded
from .toml_limits import with_mark, within_limits

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_KEY = re.compile(r"""[\w-]+|"(?:\\.|[^"\\\n])*"|'[^'\n]*'""", re.A)
_TEXT = re.compile(r"""\"{3}(?:\\[\s\S]|[^\\])*?\"{3,5}|'{3}[\s\S]*?'{3,5}|"(?:\\.|[^"\\\n])*"|'[^'\n]*'""")
_BARE = re.compile(r"[^,\]}#\r\n]+")
# 1.e-4, which the trainers' reader takes and tomlkit does not; +1e-4 is as long
_POINT = re.compile(r"^([ \t]*[\w-]+[ \t]*=[ \t]*)(\d+)\.([eE][-+]?\d+)", re.M)


def parse_toml(source: Expanded) -> Node:
    """The tree of a TOML text; dates are text in it. Raises Unreadable."""
    text = _POINT.sub(r"\1+\2\3", source.text)
    if text.startswith("\ufeff"):
        raise with_mark(text)
    try:
        value = tomlkit.parse(text).unwrap()
    except ParseError as error:
        said = str(error).partition(" at line ")[0].replace("'\\x00'", "the end of the file")
        raise Unreadable(said, _place(text, error)) from None
    except (TOMLKitError, ValueError, OverflowError) as error:
        raise Unreadable(str(error), 0) from None
    return within_limits(_Places(text).tree(value), text)


def _place(text: str, error: ParseError) -> int:
    starts = [0, *(match.end() for match in re.finditer(r"\n", text))]
    at = min(starts[min(error.line, len(starts)) - 1] + max(0, error.col - 1), len(text))
    twice = re.match(r'Key "(.+)" already exists', str(error))
    if twice is None:
        return at
    # the parser notices it at the end of the statement
    line = starts[min(error.line, len(starts)) - 1]
    written = re.compile(rf"^[ \t]*\[*[ \t]*[\"']?{re.escape(twice.group(1))}\b", re.M)
    return max((found.end() for found in written.finditer(text, 0, _line_end(text, line))), default=at) - 1


def _line_end(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) if end < 0 else end


class _Table:
    """A table while it is read: headers and dotted keys add to it from several places."""

    def __init__(self, start: int, end: int, key: tuple[int, int] | None = None, *, header: bool = False) -> None:
        self.start, self.end, self.key, self.header = start, end, key, header
        self.members: dict[str, _Table | list[_Table] | Node] = {}


class _Places:
    """Spans for a text that is known to be TOML."""

    def __init__(self, text: str) -> None:
        self.text = text

    def tree(self, value: dict[str, Any]) -> Node:
        text = self.text
        root = table = _Table(0, 0, header=True)
        index = self.skip(_BLANK, 0)
        while index < len(text):
            if text[index] == "[":
                start, several = index, text.startswith("[[", index)
                path, index = self.path(index + 1 + several)
                index += 1 + several
                table = self.section(root, path, start, index, several)
            else:
                index = table.end = self.assignment(table, index, 0)
            index = self.skip(_BLANK, index)
        return _valued(_nodes(root), value)

    def assignment(self, table: _Table, index: int, depth: int) -> int:
        """Put `a.b = value` into a table; gives where it ends."""
        path, index = self.path(index)
        child = self.value(self.skip(_SPACE, index + 1), depth)
        for name, key in path[:-1]:
            table = self.inner(table, name, key)
            table.end = child.end
        name, key = path[-1]
        table.members[name] = replace(child, key=key)
        return child.end

    def skip(self, pattern: re.Pattern[str], index: int) -> int:
        found = pattern.match(self.text, index)
        return found.end() if found else index

    def path(self, index: int) -> tuple[list[tuple[str, tuple[int, int]]], int]:
        """The names of a dotted key with their spans, and the offset of what follows."""
        names: list[tuple[str, tuple[int, int]]] = []
        while True:
            index = self.skip(_SPACE, index)
            end = self.skip(_KEY, index)
            written = self.text[index:end]
            name = str(tomlkit.parse(f"k = {written}").unwrap()["k"]) if written[:1] in ('"', "'") else written
            names.append((name, (index, end)))
            index = self.skip(_SPACE, end)
            if self.text[index] != ".":
                return names, index
            index += 1

    def section(
        self, root: _Table, path: list[tuple[str, tuple[int, int]]], start: int, end: int, several: bool
    ) -> _Table:
        table = root
        for name, key in path[:-1]:
            table = self.inner(table, name, key)
        name, key = path[-1]
        if several:
            entries = table.members.setdefault(name, [])
            assert isinstance(entries, list)
            entries.append(_Table(start, end, key, header=True))
            return entries[-1]
        made = self.inner(table, name, key)
        made.start, made.end, made.key, made.header = start, end, key, True
        return made

    def inner(self, table: _Table, name: str, key: tuple[int, int]) -> _Table:
        found = table.members.setdefault(name, _Table(key[0], key[1], key))
        if isinstance(found, list):
            return found[-1]
        assert isinstance(found, _Table)
        return found

    def value(self, start: int, depth: int) -> Node:
        """A value without its meaning, which comes from the parser."""
        if depth > DEEPEST:
            raise Unreadable(TOO_DEEP, start)
        text, flow = self.text, depth > 0
        index = self.skip(_BLANK, start + 1)
        if text[start] == "[":
            entries: list[Node] = []
            while text[index] != "]":
                entries.append(self.value(index, depth + 1))
                index = self.next_entry(entries[-1].end)
            return Node(None, start, index + 1, None, children=entries, flow=flow)
        if text[start] == "{":
            table = _Table(start, start)
            while text[index] != "}":
                index = self.next_entry(self.assignment(table, index, depth + 1))
            return replace(_nodes(table), end=index + 1, block=False, flow=flow)
        if found := _TEXT.match(text, start):
            quote = found.group()[0]
            style = quote * 3 if found.group().startswith(quote * 3) else quote
            return Node(None, start, found.end(), style, flow=flow)
        bare = _BARE.match(text, start)
        return Node(None, start, start + len(bare.group().rstrip() if bare else ""), "", flow=flow)

    def next_entry(self, index: int) -> int:
        """Where the next entry or the bracket that closes stands."""
        index = self.skip(_BLANK, index)
        return self.skip(_BLANK, index + 1) if self.text[index] == "," else index


def _nodes(table: _Table) -> Node:
    children: dict[str, Node] = {}
    for name, member in table.members.items():
        if isinstance(member, Node):
            children[name] = member
        elif isinstance(member, list):
            entries = [replace(_nodes(entry), key=entry.key) for entry in member]
            start, end = entries[0].start, entries[-1].end
            children[name] = Node(None, start, end, None, key=member[0].key, children=entries, block=True)
        else:
            children[name] = replace(_nodes(member), key=member.key)
    # a table that only the headers of others imply has no line of its own either
    block = table.header or (bool(children) and all(child.block for child in children.values()))
    return Node(None, table.start, table.end, None, children=children, block=block)


def _valued(node: Node, value: Any) -> Node:
    """The tree with the parser's values in it."""
    if isinstance(node.children, dict):
        return holding(node, {name: _valued(child, value[name]) for name, child in node.children.items()})
    if isinstance(node.children, list):
        return holding(node, [_valued(child, inner) for child, inner in zip(node.children, value, strict=True)])
    return replace(node, value=value if isinstance(value, str | bool | int | float) else str(value))
