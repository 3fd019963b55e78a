"""Any format as a tree; YAML as a tree that knows the place of every value and key in the original text.

No tag ever builds a Python object: scalars become what the trainer's SafeLoader makes of them, anything else
is a Problem. The result is what the trainer sees after its JSON round trip, so every key is a string.
"""

from __future__ import annotations

import json
import re
from typing import Any

import yaml
from yaml.events import AliasEvent, MappingStartEvent, ScalarEvent, SequenceStartEvent
from yaml.nodes import ScalarNode

from ..model import Problem, Where
from ..model.record import replace
from .env_tree import parse_env
from .json_tree import parse_json
from .node import DEEPEST, MOST_VALUES, TOO_MANY, Node, Unreadable, overwritten
from .text import Expanded, Lines

_YAML = "tag:yaml.org,2002:"
_PROPERTIES = re.compile(r"(?:[&!][^\s,\[\]{}]*[ \t]+)+")


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


def parse(path: str, source: Expanded, format: str, lines: Lines) -> Node | Problem:
    """The tree of a config, or why there is none."""
    try:
        match format:
            case "json":
                return parse_json(source)
            case "toml":
                from .toml_tree import parse_toml

                return parse_toml(source)
            case "env":
                return parse_env(source)
            case _:
                return _Yaml(source).parse()
    except Unreadable as error:
        return Problem(str(error), lines.where(error.offset), error.kind)
    except RecursionError:
        return Problem("the file is nested too deeply to be a training config", Where(path))
    except (IndexError, ValueError) as error:  # PyYAML's scanner stumbles over some damaged texts, as in the trainer
        return Problem(f"the YAML parser stumbled over it ({type(error).__name__}: {error})", Where(path))


class _Yaml:
    """One parse of one YAML text, event by event."""

    def __init__(self, source: Expanded) -> None:
        self.source = source
        self.loader: Any = None
        self.anchors: dict[str, Node | None] = {}
        self.lately: Any = None
        self.count = 0

    def parse(self) -> Node:
        loader: Any = None
        try:
            loader = _Loader(self.source.text)
            self.loader = loader
            loader.get_event()
            if loader.check_event(yaml.StreamEndEvent):
                return Node(None, 0, 0)
            loader.get_event()
            root = self.node(0)
            loader.get_event()
            if not loader.check_event(yaml.StreamEndEvent):
                event = loader.peek_event()
                raise self.failure(
                    "expected one document, but a second one starts here ('---')", event.start_mark.index
                )
            return root
        except yaml.reader.ReaderError as error:
            character = f"U+{error.character:04X}" if isinstance(error.character, int) else repr(error.character)
            raise self.failure(f"the character {character} is not allowed in YAML", error.position) from None
        except yaml.MarkedYAMLError as error:
            raise self.explained(error) from None
        except OverflowError:
            # PyYAML turns \UFFFFFFFF into chr(0xFFFFFFFF)
            offset = loader.index if loader is not None else 0
            raise self.failure("a \\U escape names no character (8 hexadecimal digits follow it)", offset) from None
        finally:
            if loader is not None:
                loader.dispose()

    def failure(self, message: str, index: int) -> Unreadable:
        return Unreadable(message, min(self.source.origin(index), self.source.origin(len(self.source.text))))

    def explained(self, error: yaml.MarkedYAMLError) -> Unreadable:
        """The parser's complaint, moved to where the mistake was made when that is certain."""
        message = str(error.problem or error.context or "no YAML")
        index = error.problem_mark.index if error.problem_mark is not None else 0
        line = error.problem_mark.line if error.problem_mark is not None else 0
        late = self.lately
        if (
            late is not None
            and late.style in ('"', "'")
            and late.start_mark.line < late.end_mark.line
            and line in (late.end_mark.line, late.end_mark.line + 1)
        ):
            return self.failure(
                f"the quote {late.style} opened here is not closed on its line ({message})", late.start_mark.index
            )
        if error.context_mark is not None and error.context in (
            "while scanning a simple key",
            "while scanning a quoted scalar",
        ):
            index = error.context_mark.index
            if error.context == "while scanning a quoted scalar":
                message = f"the quote opened here is never closed ({message})"
        return self.failure(message, index)

    def node(self, depth: int, flow: bool = False) -> Node:
        loader = self.loader
        event: Any = loader.get_event()
        self.count += 1
        if self.count > 2 * MOST_VALUES:  # keys are counted, too
            raise Unreadable(TOO_MANY, self.at(event.start_mark.index), "size")
        start, end = event.start_mark.index, event.end_mark.index
        if depth > DEEPEST:
            raise self.failure("the file is nested too deeply to be a training config", start)
        if isinstance(event, AliasEvent):
            if event.anchor not in self.anchors:
                raise self.failure(f"found undefined alias {event.anchor!r}", start)
            target = self.anchors[event.anchor]
            if target is None:
                raise self.failure(f"the anchor {event.anchor!r} contains itself", start)
            return replace(target, start=self.at(start), end=self.at(end, end=True), alias=True, key=None, flow=flow)
        anchor = event.anchor
        if anchor is not None:
            if anchor in self.anchors:
                raise self.failure(f"found duplicate anchor {anchor!r}", start)
            self.anchors[anchor] = None
        if isinstance(event, ScalarEvent):
            made = self.scalar(event)
            self.lately = event
        elif isinstance(event, SequenceStartEvent):
            made = self.sequence(event, depth)
        else:
            assert isinstance(event, MappingStartEvent)
            made = self.mapping(event, depth)
        made = replace(made, flow=flow)
        if anchor is not None:
            self.anchors[anchor] = made
        return made

    def at(self, index: int, *, end: bool = False) -> int:
        return self.source.origin(index, end=end)

    def scalar(self, event: Any) -> Node:
        loader = self.loader
        tag = event.tag
        if tag is None or tag == "!":
            tag = loader.resolve(ScalarNode, event.value, event.implicit)
        start, end = event.start_mark.index, event.end_mark.index
        if event.anchor is not None or event.tag is not None:
            properties = _PROPERTIES.match(self.source.text, start, end)
            start = properties.end() if properties else start
        node = ScalarNode(tag, event.value, event.start_mark, event.end_mark)
        value: Any
        try:
            match tag.removeprefix(_YAML):
                case "str":
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
                case "merge":
                    value = "<<"
                case _:
                    raise self.failure(f"could not determine a constructor for the tag {tag!r}", start)
        except (ValueError, OverflowError, KeyError) as error:
            raise self.failure(f"{event.value[:40]!r} is no {tag.removeprefix(_YAML)}: {error}", start) from None
        style = event.style or ""
        return Node(value, self.at(start), self.at(end, end=True), style)

    def sequence(self, event: Any, depth: int) -> Node:
        if event.tag not in (None, "!", _YAML + "seq"):
            raise self.failure(f"could not determine a constructor for the tag {event.tag!r}", event.start_mark.index)
        inner = bool(event.flow_style)
        children: list[Node] = []
        while not self.loader.check_event(yaml.SequenceEndEvent):
            children.append(self.node(depth + 1, inner))
        return self.collection(event, [child.value for child in children], children, inner)

    def mapping(self, event: Any, depth: int) -> Node:
        if event.tag not in (None, "!", _YAML + "map"):
            raise self.failure(f"could not determine a constructor for the tag {event.tag!r}", event.start_mark.index)
        inner = bool(event.flow_style)
        own: dict[str, Node] = {}
        merged: dict[str, Node] = {}
        while not self.loader.check_event(yaml.MappingEndEvent):
            peeked: Any = self.loader.peek_event()
            offset = peeked.start_mark.index
            is_merge = isinstance(peeked, ScalarEvent) and peeked.value == "<<" and peeked.implicit[0]
            key = self.node(depth + 1, inner)
            if key.children is not None:
                raise self.failure("a mapping or list cannot be a key", offset)
            value = self.node(depth + 1, inner)
            if is_merge:
                for source in _merge_sources(value):
                    if not isinstance(source.children, dict):
                        raise self.failure("expected a mapping or list of mappings for merging (<<)", offset)
                    for name, child in source.children.items():
                        merged.setdefault(name, replace(child, merged=True))
                continue
            last = own.pop(_key(key.value), None)
            own[_key(key.value)] = replace(value, key=(key.start, key.end), earlier=overwritten(last))
        children = {**{name: node for name, node in merged.items() if name not in own}, **own}
        return self.collection(event, {name: child.value for name, child in children.items()}, children, inner)

    def collection(
        self,
        event: Any,
        value: Any,
        children: dict[str, Node] | list[Node],
        flow: bool,
    ) -> Node:
        closing = self.loader.get_event()
        start = event.start_mark.index
        if event.anchor is not None or event.tag is not None:
            properties = re.compile(r"(?:[&!][^\s,\[\]{}]*\s+)+").match(self.source.text, start)
            start = properties.end() if properties else start
        if flow:
            end = self.at(closing.end_mark.index, end=True)
        else:
            # a block ends where its last value ends, not before the next token
            last = [child for _, child in Node(None, 0, 0, children=children).items() if not child.merged]
            end = max((child.end for child in last), default=self.at(start))
        return Node(value, self.at(start), end, None, children=children, block=not flow)


def _merge_sources(value: Node) -> list[Node]:
    return value.children if isinstance(value.children, list) else [value]


def _key(value: Any) -> str:
    """The key after a JSON round trip."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return float.__repr__(value) if isinstance(value, float) else str(value)
