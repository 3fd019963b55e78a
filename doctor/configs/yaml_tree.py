"""YAML as a tree: PyYAML decides what is YAML and where everything stands, this keeps the places.

No tag ever builds a Python object: scalars become what the trainer's SafeLoader makes of them, anything else is
unreadable. The tree is built from events, not composed: a composed alias has no place and a deep text no bottom.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from functools import lru_cache
from typing import Any

import yaml
from yaml.events import AliasEvent, MappingStartEvent, ScalarEvent
from yaml.nodes import ScalarNode

from ..model.record import replace
from .node import DEEPEST, TOO_DEEP, TOO_MANY, Node, Unreadable, holding, most_values, overwritten
from .text import Expanded

_YAML = "tag:yaml.org,2002:"
_PROPERTIES = re.compile(r"(?:[&!][^\s,\[\]{}]*\s+)+")
# where libyaml takes other texts than PyYAML's own parser, which the trainers use, or finds other places
_TAKEN_OTHERWISE = re.compile(r"[\t!?\ufeff\x85\u2028\u2029]|[|>].*#|:\s*(?:#.*\n\s*)*[]},]")


class _Loader(yaml.SafeLoader):
    """SafeLoader with ai-toolkit's floats: `1e-4` is a number."""


_Loader.add_implicit_resolver(
    _YAML + "float",
    re.compile(
        r"""^(?:
         [-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?
        |[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+
        |\.[0-9_]+(?:[eE][-+][0-9]+)?
        |[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*
        |[-+]?\.(?:inf|Inf|INF)
        |\.(?:nan|NaN|NAN))$""",
        re.X,
    ),
    list("-+0123456789."),
)


class _FastLoader(getattr(yaml, "CSafeLoader", _Loader)):  # type: ignore[misc]
    """The same by libyaml, where PyYAML was built with it: a fifth of the time."""

    yaml_implicit_resolvers = _Loader.yaml_implicit_resolvers


def parse_yaml(source: Expanded) -> Node:
    """The tree of a YAML text. Raises Unreadable, and what PyYAML's scanner raises where it stumbles."""
    return _parsed(source) if source.filled_in else _parsed_once(source.text)


@lru_cache(maxsize=4)
def _parsed_once(text: str) -> Node:
    """A repair's text is parsed to see what it changed, and again to be examined."""
    return _parsed(Expanded(text))


def _parsed(source: Expanded) -> Node:
    if not _TAKEN_OTHERWISE.search(source.text):
        with suppress(yaml.YAMLError, Unreadable, ValueError, OverflowError):  # the other parser has the words for it
            return _Tree(source, _FastLoader).parse()
    return _Tree(source, _Loader).parse()


class _Tree:
    """One parse of one text, event by event."""

    def __init__(self, source: Expanded, loader: type[Any]) -> None:
        self.source = source
        self.make_loader = loader
        self.loader: Any = None
        self.anchors: dict[str, Node | None] = {}
        self.last_scalar: Any = None
        self.count = 0
        self.most = 2 * most_values(source.text)  # keys are counted, too

    def parse(self) -> Node:
        try:
            loader = self.loader = self.make_loader(self.source.text)
            loader.get_event()
            if loader.check_event(yaml.StreamEndEvent):
                return Node(None, 0, 0)
            loader.get_event()
            root = self.node(0)
            loader.get_event()
            if not loader.check_event(yaml.StreamEndEvent):
                at = loader.peek_event().start_mark.index
                raise self.failure("expected one document, but a second one starts here ('---')", at)
            return root
        except yaml.reader.ReaderError as error:
            character = f"U+{error.character:04X}" if isinstance(error.character, int) else repr(error.character)
            raise self.failure(f"the character {character} is not allowed in YAML", error.position) from None
        except yaml.MarkedYAMLError as error:
            raise self.explained(error) from None
        except OverflowError:  # PyYAML turns \UFFFFFFFF into chr(0xFFFFFFFF)
            message = "a \\U escape names no character (8 hexadecimal digits follow it)"
            raise self.failure(message, getattr(self.loader, "index", 0)) from None
        finally:
            if self.loader is not None:
                self.loader.dispose()

    def failure(self, message: str, index: int) -> Unreadable:
        return Unreadable(message, min(self.source.origin(index), self.source.origin(len(self.source.text))))

    def explained(self, error: yaml.MarkedYAMLError) -> Unreadable:
        """The parser's complaint, moved to where the mistake was made when that is certain."""
        message = str(error.problem or error.context or "no YAML")
        mark, last = error.problem_mark, self.last_scalar
        if last is not None and last.style in ('"', "'") and last.start_mark.line < last.end_mark.line:
            ends = last.end_mark.line
            if (0 if mark is None else mark.line) in (ends, ends + 1):
                message = f"the quote {last.style} opened here is not closed on its line ({message})"
                return self.failure(message, last.start_mark.index)
        if error.context == "while scanning a quoted scalar":
            message = f"the quote opened here is never closed ({message})"
        if error.context in ("while scanning a simple key", "while scanning a quoted scalar"):
            mark = error.context_mark or mark
        return self.failure(message, mark.index if mark is not None else 0)

    def node(self, depth: int, flow: bool = False) -> Node:
        event: Any = self.loader.get_event()
        anchor, start, end = event.anchor, event.start_mark.index, event.end_mark.index
        self.count += 1
        if self.count > self.most:
            raise Unreadable(TOO_MANY, self.source.origin(start), "size")
        if depth > DEEPEST:
            raise self.failure(TOO_DEEP, start)
        if isinstance(event, AliasEvent):
            if anchor not in self.anchors:
                raise self.failure(f"found undefined alias {anchor!r}", start)
            target = self.anchors[anchor]
            if target is None:
                raise self.failure(f"the anchor {anchor!r} contains itself", start)
            start, end = self.span(start, end)
            return replace(target, start=start, end=end, alias=True, key=None, flow=flow)
        if anchor is not None:
            if anchor in self.anchors:
                raise self.failure(f"found duplicate anchor {anchor!r}", start)
            self.anchors[anchor] = None
        if isinstance(event, ScalarEvent):
            made = self.scalar(event, flow)
            self.last_scalar = event
        else:
            made = self.collection(event, depth, flow)
        if anchor is not None:
            self.anchors[anchor] = made
        return made

    def span(self, start: int, end: int) -> tuple[int, int]:
        return self.source.origin(start), self.source.origin(end, end=True)

    def start(self, event: Any, end: int) -> int:
        """Where a value itself begins, behind its anchor and its tag."""
        start: int = event.start_mark.index
        if event.anchor is None and event.tag is None:
            return start
        properties = _PROPERTIES.match(self.source.text, start, end)
        return properties.end() if properties else start

    def scalar(self, event: Any, flow: bool) -> Node:
        loader, tag, end = self.loader, event.tag, event.end_mark.index
        if tag is None or tag == "!":
            tag = loader.resolve(ScalarNode, event.value, event.implicit)
        start = self.start(event, end)
        node = ScalarNode(tag, event.value, event.start_mark, event.end_mark)
        value: Any
        try:
            match tag.removeprefix(_YAML):
                case "str" | "merge":
                    value = event.value
                case "null":
                    value = None
                case "bool":
                    value = loader.bool_values[event.value.lower()]
                case "int":
                    value = loader.construct_yaml_int(node)
                case "float":
                    value = loader.construct_yaml_float(node)
                case "timestamp":
                    raise self.failure(
                        f"{event.value} is read as a date, which the trainer cannot store "
                        "(Object of type date is not JSON serializable); put it in quotes",
                        start,
                    )
                case _:
                    raise self.failure(f"could not determine a constructor for the tag {tag!r}", start)
        except (ValueError, OverflowError, KeyError) as error:
            raise self.failure(f"{event.value[:40]!r} is no {tag.removeprefix(_YAML)}: {error}", start) from None
        return Node(value, *self.span(start, end), event.style or "", flow=flow)

    def collection(self, event: Any, depth: int, flow: bool) -> Node:
        is_mapping, inner = isinstance(event, MappingStartEvent), bool(event.flow_style)
        if event.tag not in (None, "!", _YAML + ("map" if is_mapping else "seq")):
            raise self.failure(f"could not determine a constructor for the tag {event.tag!r}", event.start_mark.index)
        children: dict[str, Node] | list[Node] = self.members(depth + 1, inner) if is_mapping else []
        while isinstance(children, list) and not self.loader.check_event(yaml.SequenceEndEvent):
            children.append(self.node(depth + 1, inner))
        closing = self.loader.get_event().end_mark.index
        start, end = self.span(self.start(event, len(self.source.text)), closing)
        if not inner:  # a block ends where its last value ends, not before the next token
            own = children.values() if isinstance(children, dict) else children
            end = max((child.end for child in own if not child.merged), default=start)
        return holding(Node(None, start, end, None, flow=flow, block=not inner), children)

    def members(self, depth: int, flow: bool) -> dict[str, Node]:
        own: dict[str, Node] = {}
        merged: dict[str, Node] = {}
        while not self.loader.check_event(yaml.MappingEndEvent):
            peeked: Any = self.loader.peek_event()
            offset = peeked.start_mark.index
            key = self.node(depth, flow)
            if key.children is not None:
                raise self.failure("a mapping or list cannot be a key", offset)
            value = self.node(depth, flow)
            if isinstance(peeked, ScalarEvent) and peeked.value == "<<" and peeked.implicit[0]:
                for source in value.children if isinstance(value.children, list) else [value]:
                    if not isinstance(source.children, dict):
                        raise self.failure("expected a mapping or list of mappings for merging (<<)", offset)
                    for name, child in source.children.items():
                        merged.setdefault(name, replace(child, merged=True))
                continue
            name = _key(key.value)
            own[name] = replace(value, key=(key.start, key.end), earlier=overwritten(own.pop(name, None)))
        return {**{name: node for name, node in merged.items() if name not in own}, **own}


def _key(value: Any) -> str:
    """The key after the trainer's JSON round trip."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return float.__repr__(value) if isinstance(value, float) else str(value)
