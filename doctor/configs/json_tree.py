"""JSON as a tree: `json.loads` decides what is JSON, this finds the places."""

from __future__ import annotations

import json
import re
from typing import Any

from ..model.record import replace
from .node import DEEPEST, TOO_DEEP, Node, Unreadable, overwritten
from .text import Expanded

_DECODER = json.JSONDecoder()
_BLANK = re.compile(r"[ \t\r\n]*")


def parse_json(source: Expanded) -> Node:
    """The tree of a JSON text. Raises Unreadable, and RecursionError from the parser itself."""
    return _Json(source).parse()


class _Json:
    """Positions for a text that `json.loads` accepts; what it refuses is refused with its words."""

    def __init__(self, source: Expanded) -> None:
        self.source = source
        self.text = source.text

    def parse(self) -> Node:
        try:
            json.loads(self.text)
        except json.JSONDecodeError as error:
            raise Unreadable(error.msg, self.source.origin(error.pos)) from None
        except ValueError as error:
            raise Unreadable(str(error), 0) from None
        return self.node(self.blank(0), 0)[0]

    def blank(self, index: int) -> int:
        found = _BLANK.match(self.text, index)
        return found.end() if found else index

    def node(self, index: int, depth: int) -> tuple[Node, int]:
        if depth > DEEPEST:
            raise Unreadable(TOO_DEEP, self.source.origin(index))
        text, start = self.text, index
        children: dict[str, Node] | list[Node] | None = None
        value: Any
        style: str | None = ""
        if text[index] == '"':
            value, index = _DECODER.raw_decode(text, index)
            style = '"'
        elif text[index] == "{":
            members: dict[str, Node] = {}
            index = self.blank(index + 1)
            while text[index] != "}":
                key_start = index
                name, index = _DECODER.raw_decode(text, index)
                key = (self.source.origin(key_start), self.source.origin(index, end=True))
                child, index = self.node(self.blank(self.blank(index) + 1), depth + 1)
                last = members.pop(name, None)
                members[name] = replace(child, key=key, earlier=overwritten(last))
                index = self.blank(index)
                if text[index] == ",":
                    index = self.blank(index + 1)
            index += 1
            children, style = members, None
            value = {name: child.value for name, child in members.items()}
        elif text[index] == "[":
            entries: list[Node] = []
            index = self.blank(index + 1)
            while text[index] != "]":
                child, index = self.node(index, depth + 1)
                entries.append(child)
                index = self.blank(index)
                if text[index] == ",":
                    index = self.blank(index + 1)
            index += 1
            children, style = entries, None
            value = [child.value for child in entries]
        else:
            value, index = _DECODER.raw_decode(text, index)
        start, end = self.source.origin(start), self.source.origin(index, end=True)
        return Node(value, start, end, style, children=children, flow=depth > 0), index
