"""The options that a script's parser takes by argparse, through every function that adds some."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from ..model.schema import Key
from .constant_folding import KINDS, NOT_LITERAL, NotLiteral, folded, iterations, kind_of
from .sources import Sources


class ParserOptions:
    """The options of the parsers of a checkout, function by function."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self._known: dict[tuple[str, str], dict[str, Key]] = {}

    def of(self, file: str, name: str) -> dict[str, Key]:
        """The options that a function adds to its parser, with those of the functions it hands the parser to."""
        found = self.sources.defined(file, name)
        if found is None:
            return {}
        at, function = found
        if (at, name) not in self._known:
            self._known[at, name] = {}  # for a function that calls itself
            self._known[at, name] = self.below(at, function)
        return self._known[at, name]

    def below(self, file: str, node: ast.AST) -> dict[str, Key]:
        """The options that the calls below a node of a file add."""
        made: dict[str, Key] = {}
        for call, names in _calls(node):
            if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
                made |= option(call, names)
            else:
                made |= self._handed_on(file, call)
        return made

    def _handed_on(self, file: str, call: ast.Call) -> dict[str, Key]:
        """The options of a function that a call gives the parser to, or that makes one."""
        match call.func:
            case ast.Name(name):
                modules = [file]
            case ast.Attribute(ast.Name(module), name):
                body = self.sources.body(file)
                modules = [at for node in body for _, at in self.sources.imported(file, node, module)]
            case _:
                return {}
        if "setup_parser" not in name and not any(isinstance(a, ast.Name) and a.id == "parser" for a in call.args):
            return {}
        return next(filter(None, (self.of(module, name) for module in modules)), {})


def _calls(node: ast.AST) -> Iterator[tuple[ast.Call, Mapping[str, Any]]]:
    """Every call below a node, with the values that the loops around it give to names."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call):
            yield inner, {}
        elif isinstance(inner, ast.For):
            with suppress(NotLiteral):
                for names in iterations(inner.target, inner.iter, {}):
                    yield from ((call, names) for call in ast.walk(inner) if isinstance(call, ast.Call))


def option(call: ast.Call, known: Mapping[str, Any]) -> dict[str, Key]:
    """What one `add_argument` call declares, by each spelling of its name, without dashes."""
    written = {word.arg: word.value for word in call.keywords if word.arg is not None}
    given = {name: folded(value, known, NOT_LITERAL) for name, value in written.items()}
    default = given.get("default", NOT_LITERAL)
    kind = KINDS.get(getattr(written.get("type"), "id", ""), "")
    if str(given.get("action", "")).startswith("store_"):
        kind, default = "bool", given["action"] == "store_false"
    if given.get("nargs") in ("*", "+"):
        kind = "list"
    has_default = default is not NOT_LITERAL
    default = default if has_default else None
    choices = given.get("choices")
    listed = tuple(str(c) for c in choices if c is not None) if isinstance(choices, list) else ()
    made = Key(kind or kind_of(default), default, has_default, listed, strict=bool(listed))
    names = (folded(argument, known) for argument in call.args)
    return {name.lstrip("-"): made for name in names if isinstance(name, str) and name.startswith("--")}
