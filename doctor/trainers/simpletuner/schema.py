"""SimpleTuner's idiom: ConfigField records, from which its parser is made, and dictionaries for datasets."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ...model.schema import Key, Kind, Schema
from ...schema.arguments import Options
from ...schema.fold import NotLiteral, constants, folded, turns
from ...schema.sources import Sources

MARKER = "simpletuner/helpers/configuration/cmd_args.py"
_FIELDS = (
    "simpletuner/simpletuner_sdk/server/services/field_registry/sections",
    "simpletuner/helpers/models/field_registry",
)
_ROOT = "simpletuner/helpers"
_DATASETS = tuple(
    f"{_ROOT}/{name}" for name in ("data_backend", "metadata", "multiaspect", "image_manipulation", "caching")
)
_MORE = tuple(
    f"{_ROOT}/{name}.py" for name in ("prompts", "training/state_tracker", "training/collate", "training/trainer")
)
_KINDS: Mapping[str, Kind] = {
    "CHECKBOX": "bool", "SELECT": "str", "TEXT": "str", "TEXTAREA": "str", "PASSWORD": "str", "FILE": "str",
    "TEXT_JSON": "dict", "MULTI_SELECT": "list",
}  # fmt: skip
_PARSERS: Mapping[str, Kind] = {"INTEGER": "int", "FLOAT": "float", "STRING": "str", "BOOLEAN": "bool"}
# the backends hold their keys in dictionaries that pass through some 5,000 lines: what is asked of any mapping there
# counts, so that nothing real is called unknown
_ASKED = re.compile(rb"""(?:(?:\.get|\.pop)\(\s*|\[)["']([a-z]\w+)["']|["']([a-z]\w+)["']\s+(?:not\s+)?in\s""")


def mine(sources: Sources) -> Schema:
    """Section "" holds the options, "datasets/*" the keys of an entry of the data backend file."""
    shared: dict[str, Any] = {}
    for statement in sources.statements("simpletuner/helpers/training/__init__.py", rb"quantised_precision_levels\b"):
        shared = constants([statement])
    options: dict[str, Key] = {}
    for folder in _FIELDS:
        for file in sources.files(folder):
            tree = sources.tree(file)
            for node in tree.body if tree is not None else ():
                if isinstance(node, ast.FunctionDef):
                    for name, key in _Fields({**shared}).of(node.body):
                        options.setdefault(name, key)
    if not options:  # before the registry the parser was written out
        options = dict(Options(sources).of(MARKER, "get_argument_parser") or {})
    families = tuple(_families(sources))
    if "model_family" in options and families:
        options["model_family"] = Key("str", None, False, families, strict=True)
    asked = {
        (one or other).decode()
        for file in (*(file for folder in _DATASETS for file in sources.files(folder)), *_MORE)
        for one, other in _ASKED.findall(sources.text(file) or b"")
    }
    return Schema(
        trainer="SimpleTuner",
        repository="https://github.com/bghira/SimpleTuner",
        commit="",
        sections={"": options, "datasets/*": {name: Key() for name in sorted(asked)}},
        renamed=dict(_legacy(sources)),
        unparsed=sources.unparsed,
    )


def _families(sources: Sources) -> Iterator[str]:
    try:
        held = json.loads(sources.text("simpletuner/helpers/models/model_metadata.json") or b"{}")
    except ValueError:
        return
    yield from (name for name in held if isinstance(name, str))


def _legacy(sources: Sources) -> Iterator[tuple[str, str]]:
    """Old name -> the name in use, "" where the old one is taken and dropped."""
    tree = sources.tree("simpletuner/helpers/configuration/cli_utils.py")
    for node in tree.body if tree is not None else ():
        for decorator in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
            match decorator:
                case ast.Call(ast.Name("_legacy_handler"), [ast.Constant(str() as old)]):
                    new = ""
                    for call in ast.walk(node):
                        match call:
                            case ast.Call(
                                ast.Name("_ensure_prefixed" | "_format_key_value"), [ast.Constant(str() as to), *_]
                            ):
                                new = to
                            case _:
                                pass
                    yield old, new
                case _:
                    pass


class _Fields:
    """The ConfigField records that a function makes, loops over literals unrolled."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.names = names
        self.expressions: dict[str, ast.expr] = {}

    def of(self, body: list[ast.stmt]) -> Iterator[tuple[str, Key]]:
        for statement in body:
            match statement:
                case ast.Assign([ast.Name(name)], value):
                    self.expressions[name] = value
                    missing = object()
                    made = folded(value, self.names, missing)
                    if made is not missing:
                        self.names[name] = made
                    yield from self._record(value)
                case ast.Expr(ast.Call(_, [first, *_])):
                    yield from self._record(first)
                case ast.For(target, iterable, inside):
                    before = self.names
                    try:
                        for self.names in turns(target, iterable, before):
                            yield from self.of(inside)
                    except NotLiteral:
                        yield from self.of(inside)
                    self.names = before
                case ast.If(_, inside, other):
                    yield from self.of([*inside, *other])
                case ast.With(_, inside) | ast.Try(inside):
                    yield from self.of(inside)
                case _:
                    pass

    def _record(self, node: ast.expr) -> Iterator[tuple[str, Key]]:
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "ConfigField"):
            return
        given = {word.arg: word.value for word in node.keywords if word.arg is not None}
        spelt = folded(given.get("arg_name"), self.names, "")
        name = folded(given.get("name"), self.names)
        default = folded(given.get("default_value"), self.names)
        if spelt is None and isinstance(name, str):  # for datasets only; the trainer drops it here without a word
            yield name, Key()
        if not isinstance(spelt, str) or not spelt.startswith("--") or default == "==SUPPRESS==":
            return
        dynamic = bool(folded(given.get("dynamic_choices"), self.names, False))
        choices = () if dynamic else tuple(str(c) for c in self._choices(given.get("choices")) if c is not None)
        kind = self._kind(given, default)
        if kind == "bool" and isinstance(default, str):
            default = default.lower() == "true"
        made = Key(kind, default, "default_value" in given, choices, strict=bool(choices) and kind != "bool")
        others = folded(given.get("aliases"), self.names) or []
        for option in (spelt, *(alias for alias in others if isinstance(alias, str))):
            yield option.lstrip("-"), made

    def _kind(self, given: Mapping[str, ast.expr], default: object) -> Kind:
        parser, field = given.get("parser_type"), given.get("field_type")
        if isinstance(parser, ast.Attribute):
            return _PARSERS.get(parser.attr, "")
        if isinstance(field, ast.Attribute) and field.attr == "NUMBER":
            return "float" if isinstance(default, float) else ""
        return _KINDS.get(field.attr, "") if isinstance(field, ast.Attribute) else ""

    def _choices(self, node: ast.expr | None) -> Iterator[Any]:
        """The values of a list of choices; their labels may be anything."""
        match node:
            case ast.Name(name) if name in self.expressions:
                yield from self._choices(self.expressions[name])
            case ast.List(entries):
                for entry in entries:
                    yield from self._value(entry, self.names)
            case ast.ListComp(element, [ast.comprehension(target, iterable, [], 0)]):
                try:
                    for names in turns(target, iterable, self.names):
                        yield from self._value(element, names)
                except NotLiteral:
                    pass
            case _:
                pass

    def _value(self, entry: ast.expr, names: Mapping[str, Any]) -> Iterator[Any]:
        if isinstance(entry, ast.Dict):
            for key, value in zip(entry.keys, entry.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "value":
                    yield folded(value, names)
        elif not isinstance(entry, ast.Starred):
            yield folded(entry, names)
