"""argparse's idiom: the options that a script's parser takes, through every function that adds some."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, cast

from ..model.schema import Key, Kind
from .fold import NotLiteral, folded, turns
from .sources import Sources

_KINDS: Mapping[str, Kind] = {
    "int": "int",
    "float": "float",
    "str": "str",
    "int_or_float": "float",
    "_int_or_float": "float",
}
_NOT = object()


class Options:
    """The options of the parsers of a checkout, function by function."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self._known: dict[tuple[str, str], dict[str, Key] | None] = {}
        self._imports: dict[str, list[ast.stmt]] = {}

    def of(self, file: str, function: str) -> dict[str, Key] | None:
        """The options that a function adds to its parser, with those of the functions it hands the parser to.

        None where the file has no such function.
        """
        if (file, function) not in self._known:
            self._known[file, function] = {}  # for a function that calls itself
            self._known[file, function] = self._in(file, function)
        return self._known[file, function]

    def _in(self, file: str, function: str) -> dict[str, Key] | None:
        made: dict[str, Key] | None = None
        for node in self.sources.statements(file, rb"def " + function.encode() + rb"\("):
            made = made or {}
            for call, names in _calls(node):
                match call.func:
                    case ast.Attribute(_, "add_argument"):
                        made |= option(call, names)
                    case ast.Name(name) if self._hands_on(call, name):
                        made |= self._called(file, None, name)
                    case ast.Attribute(ast.Name(module), name) if self._hands_on(call, name):
                        made |= self._called(file, module, name)
                    case _:
                        pass
        return made

    def _hands_on(self, call: ast.Call, name: str) -> bool:
        given = [a.id for a in call.args if isinstance(a, ast.Name)]
        return "parser" in given or "setup_parser" in name

    def _called(self, file: str, module: str | None, name: str, hops: int = 4) -> dict[str, Key]:
        """Follow a call to its definition: in this file, or where the name was imported from, which may import it."""
        here = self.of(file, name) if module is None else None
        if here is not None:
            return here
        if file not in self._imports:
            self._imports[file] = list(self.sources.statements(file, rb"(?:from|import) "))
        for node in self._imports[file]:
            names = [a.asname or a.name for a in node.names] if isinstance(node, ast.ImportFrom | ast.Import) else []
            for at in self._files(file, node, module or name) if (module or name) in names else ():
                if self.sources.text(at) is not None and hops:
                    found = self._called(at, None, name, hops - 1)
                    if found:
                        return found
        return {}

    def _files(self, file: str, node: ast.stmt, name: str) -> Iterator[str]:
        top = file.split("/")[0] + "/" if file.startswith("src/") else ""  # a layout with the package below src/
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield f"{top}{alias.name.replace('.', '/')}.py"
        elif isinstance(node, ast.ImportFrom):
            original = next((a.name for a in node.names if (a.asname or a.name) == name), name)
            for at in self.sources.modules(file, node, original):
                yield from (top + at, at)


def _calls(node: ast.AST) -> Iterator[tuple[ast.Call, Mapping[str, Any]]]:
    """Every call below a node, with the values that the loops around it give to names."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call):
            yield inner, {}
        elif isinstance(inner, ast.For):
            with suppress(NotLiteral):
                for names in turns(inner.target, inner.iter, {}):
                    yield from ((call, names) for call in ast.walk(inner) if isinstance(call, ast.Call))


def option(call: ast.Call, known: Mapping[str, Any]) -> dict[str, Key]:
    """What one `add_argument` call declares, by each spelling of its name, without dashes."""
    given: dict[str, Any] = {
        word.arg: folded(word.value, known, _NOT) for word in call.keywords if word.arg is not None
    }
    names = [
        name for name in (folded(a, known) for a in call.args) if isinstance(name, str) and name.startswith("--")
    ]
    kind: Kind = ""
    for word in call.keywords:
        if word.arg == "type" and isinstance(word.value, ast.Name):
            kind = _KINDS.get(word.value.id, "")
    default, has_default = given.get("default"), "default" in given and given["default"] is not _NOT
    if str(given.get("action", "")).startswith("store_"):
        kind, default, has_default = "bool", given["action"] == "store_false", True
    if given.get("nargs") in ("*", "+"):
        kind = "list"
    if not kind and has_default and default is not None:
        kind = cast(Kind, type(default).__name__)
    choices = given.get("choices")
    listed = tuple(str(c) for c in choices if c is not None) if isinstance(choices, list) else ()
    made = Key(kind, default if has_default else None, has_default, listed, strict=bool(listed))
    return {name.lstrip("-"): made for name in names}
