"""JSON as a tree: `json.loads` decides what is JSON, this finds the places."""

from __future__ import annotations

import json
import re

from ..model.record import replace
from .node import DEEPEST, TOO_DEEP, Node, Unreadable, holding, overwritten
from .text import Expanded

_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|[{}\[\]]|[^\s{}\[\],:"]+')


def parse_json(source: Expanded) -> Node:
    """The tree of a JSON text. Raises Unreadable, and RecursionError from the parser itself."""
    try:
        json.loads(source.text)
    except json.JSONDecodeError as error:
        raise Unreadable(error.msg, source.origin(error.pos)) from None
    except ValueError as error:
        raise Unreadable(str(error), 0) from None
    return _Json(source).node(0)


class _Json:
    """Places for a text that is known to be JSON; commas and colons say no more than the order of the others."""

    def __init__(self, source: Expanded) -> None:
        self.source = source
        self.tokens = _TOKEN.finditer(source.text)

    def span(self, first: re.Match[str], last: re.Match[str]) -> tuple[int, int]:
        return self.source.origin(first.start()), self.source.origin(last.end(), end=True)

    def node(self, depth: int, opening: re.Match[str] | None = None) -> Node:
        """The value that begins with the token `opening`, the next one where none is given."""
        first = last = opening or next(self.tokens)
        if depth > DEEPEST:
            raise Unreadable(TOO_DEEP, self.source.origin(first.start()))
        if first.group() == "{":
            members: dict[str, Node] = {}
            while (last := next(self.tokens)).group() != "}":
                name, key = json.loads(last.group()), self.span(last, last)
                members[name] = replace(self.node(depth + 1), key=key, earlier=overwritten(members.pop(name, None)))
            return holding(Node(None, *self.span(first, last), None, flow=depth > 0), members)
        if first.group() == "[":
            entries: list[Node] = []
            while (last := next(self.tokens)).group() != "]":
                entries.append(self.node(depth + 1, last))
            return holding(Node(None, *self.span(first, last), None, flow=depth > 0), entries)
        style = '"' if first.group()[0] == '"' else ""
        return Node(json.loads(first.group()), *self.span(first, last), style, flow=depth > 0)
