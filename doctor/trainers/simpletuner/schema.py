"""The keys of SimpleTuner: ConfigField records, from which its parser is made, and dictionaries for datasets."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from ...configs.json_schema import section_schema
from ...mining.argparse_options import ParserOptions
from ...mining.constant_folding import NOT_LITERAL, NotLiteral, folded, iterations, texts
from ...mining.sources import Sources
from ...model.schema import Key, Kind, Schema

REPOSITORY = "https://github.com/bghira/SimpleTuner"
_LEVELS = "quantised_precision_levels"
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
    options: dict[str, Key] = {}
    levels = sources.constants("simpletuner/helpers/training/__init__.py").get(_LEVELS)
    for file in (file for folder in _FIELDS for file in sources.files(folder)):
        for node in sources.body(file):
            if isinstance(node, ast.FunctionDef):
                for name, key in _Fields({_LEVELS: levels} if levels else {}).of(node.body):
                    options.setdefault(name, key)
    if not options:  # before the registry the parser was written out
        options = dict(ParserOptions(sources).of(f"{_ROOT}/configuration/cmd_args.py", "get_argument_parser"))
    families = tuple(_families(sources))
    if "model_family" in options and families:
        options["model_family"] = Key("str", None, False, families, strict=True)
    asked = {
        (one or other).decode()
        for file in (*(file for folder in _DATASETS for file in sources.files(folder)), *_MORE)
        for one, other in _ASKED.findall(sources.text(file))
    }
    sections = {"": options, "datasets/*": {name: Key() for name in sorted(asked)}}
    renamed = dict(_legacy(sources))
    return Schema("SimpleTuner", REPOSITORY, "", sections, renamed=renamed, unparsed=sources.unparsed)


def _families(sources: Sources) -> Iterator[str]:
    with suppress(ValueError):
        held = json.loads(sources.text("simpletuner/helpers/models/model_metadata.json") or b"{}")
        yield from (name for name in held if isinstance(name, str))


def _legacy(sources: Sources) -> Iterator[tuple[str, str]]:
    """Old name -> the name in use, "" where the old one is taken and dropped."""
    for node in sources.body("simpletuner/helpers/configuration/cli_utils.py"):
        for decorator in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
            match decorator:
                case ast.Call(ast.Name("_legacy_handler"), [ast.Constant(str() as old)]):
                    yield old, _first_text(node, ("_ensure_prefixed", "_format_key_value"))


def _first_text(function: ast.AST, called: tuple[str, ...]) -> str:
    """The text that the last call of one of these functions is given first, "" where there is none."""
    found = ""
    for call in ast.walk(function):
        match call:
            case ast.Call(ast.Name(name), [ast.Constant(str() as text), *_]) if name in called:
                found = text
    return found


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
                    made = folded(value, self.names, NOT_LITERAL)
                    if made is not NOT_LITERAL:
                        self.names[name] = made
                    yield from self._record(value)
                case ast.Expr(ast.Call(_, [first, *_])):
                    yield from self._record(first)
                case ast.For(target, iterable, inside):
                    before = self.names
                    try:
                        for self.names in iterations(target, iterable, before):
                            yield from self.of(inside)
                    except NotLiteral:
                        yield from self.of(inside)
                    self.names = before
                case ast.If(_, inside, other):
                    yield from self.of([*inside, *other])
                case ast.With(_, inside) | ast.Try(inside):
                    yield from self.of(inside)

    def _record(self, node: ast.expr) -> Iterator[tuple[str, Key]]:
        match node:
            case ast.Call(ast.Name("ConfigField"), _, keywords):
                given = {word.arg: word.value for word in keywords if word.arg is not None}
            case _:
                return
        spelt = folded(given.get("arg_name"), self.names, "")
        name = folded(given.get("name"), self.names)
        default = folded(given.get("default_value"), self.names)
        if spelt is None and isinstance(name, str):  # for datasets only; the trainer drops it here without a word
            yield name, Key()
        if not isinstance(spelt, str) or not spelt.startswith("--") or default == "==SUPPRESS==":
            return
        kind = self._kind(given, default)
        default = default.lower() == "true" if kind == "bool" and isinstance(default, str) else default
        choices: tuple[str, ...] = ()
        if not folded(given.get("dynamic_choices"), self.names, False):
            choices = tuple(str(c) for c in self._choices(given.get("choices")) if c is not None)
        made = Key(kind, default, "default_value" in given, choices, strict=bool(choices) and kind != "bool")
        for option in (spelt, *texts(folded(given.get("aliases"), self.names))):
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
        listed: list[tuple[ast.expr, Mapping[str, Any]]] = []
        match node:
            case ast.Name(name) if name in self.expressions:
                yield from self._choices(self.expressions[name])
            case ast.List(entries):
                listed = [(entry, self.names) for entry in entries if not isinstance(entry, ast.Starred)]
            case ast.ListComp(element, [ast.comprehension(target, iterable, [], 0)]):
                with suppress(NotLiteral):
                    listed = [(element, names) for names in iterations(target, iterable, self.names)]
        for entry, names in listed:
            inside = zip(entry.keys, entry.values, strict=True) if isinstance(entry, ast.Dict) else [(None, entry)]
            for key, value in inside:
                if key is None or (isinstance(key, ast.Constant) and key.value == "value"):
                    yield folded(value, names)


def for_editor(schema: Schema) -> dict[str, Any]:
    """The options, with or without dashes, as they are or as its interface saves them; or the file of datasets."""
    options = section_schema(schema, "", strict=False)
    plain: dict[str, Any] = options["properties"]
    for old, new in schema.renamed.items():
        plain[old] = {"deprecated": True, "description": f"Now called {new}." if new else "Taken and dropped."}
    dashed = {f"--{name}": {"$ref": f"#/$defs/options/properties/{name}"} for name in plain}
    options["properties"] = {**plain, **dashed}
    return {
        "type": ["object", "array"],
        "if": {"type": "array"},
        "then": {"items": section_schema(schema, "datasets/*", strict=False)},
        "else": {
            "if": {"required": ["_metadata", "config"]},
            "then": {"properties": {"config": {"$ref": "#/$defs/options"}}},
            "else": {"$ref": "#/$defs/options"},
        },
        "$defs": {"options": options},
    }
