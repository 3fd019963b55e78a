"""Which keys a class reads from its mappings: `kwargs.get('x', default)`, `get_conf('x')`, `Section(**x)`."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, cast

from ..model.record import replace
from ..model.schema import Key, Kind
from .fold import constants, folded
from .sources import Sources

_NOT = object()
_KINDS: Mapping[str, Kind] = {
    "int": "int", "float": "float", "bool": "bool", "str": "str", "list": "list", "List": "list", "dict": "dict",
    "Dict": "dict", "Tuple": "list", "tuple": "list",
}  # fmt: skip

Sections = dict[str, dict[str, Key]]


def literal_types(body: list[ast.stmt]) -> dict[str, tuple[str, ...]]:
    """The names that a module gives to Literal types, with their values."""
    found: dict[str, tuple[str, ...]] = {}
    for statement in body:
        match statement:
            case ast.Assign([ast.Name(name)], ast.Subscript(ast.Name("Literal"), values)):
                listed = folded(values, {}, ())
                found[name] = tuple(
                    v for v in (listed if isinstance(listed, list) else [listed]) if isinstance(v, str)
                )
            case _:
                pass
    return found


class Reads:
    """The keys that classes of a checkout read, section by section."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self._literals: dict[str, dict[str, tuple[str, ...]]] = {}
        self._constants: dict[str, dict[str, Any]] = {}
        self._processes: dict[tuple[str, str], Sections] = {}

    def lineage(self, path: str, name: str) -> list[tuple[str, ast.ClassDef]]:
        """A class and its bases as far as they lie in the checkout, nearest first."""
        made: list[tuple[str, ast.ClassDef]] = []
        waiting = [(path, name)]
        while waiting and len(made) < 20:
            at, wanted = waiting.pop(0)
            found = self.sources.defined(at, wanted)
            if found is None or found in made:
                continue
            made.append(found)
            waiting += [(found[0], base.id) for base in found[1].bases if isinstance(base, ast.Name)]
        return made

    def section(self, path: str, name: str, at: str, positional: int, into: Sections) -> None:
        """The keys of a class that takes a mapping as keyword arguments, as the section `at`."""
        classes = self.lineage(path, name)
        if not classes:
            return
        known = into.setdefault(at, {})
        for file, definition in classes:
            if any("dataclass" in ast.dump(decorator) for decorator in definition.decorator_list):
                for statement in definition.body:
                    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                        known.setdefault(statement.target.id, self.key(file, statement.value, statement.annotation))
            for function in definition.body:
                if isinstance(function, ast.FunctionDef) and function.name == "__init__":
                    self._constructor(file, function, at, positional, into)

    def _constructor(self, file: str, function: ast.FunctionDef, at: str, positional: int, into: Sections) -> None:
        arguments = function.args
        named = (*arguments.posonlyargs, *arguments.args)
        defaults = [None] * (len(named) - len(arguments.defaults)) + list(arguments.defaults)
        taken = [*zip(named, defaults, strict=True)][1 + positional :]
        taken += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        for argument, default in taken:
            into[at].setdefault(argument.arg, self.key(file, default, argument.annotation))
        if arguments.kwarg is not None:
            _Reader(self, file, {arguments.kwarg.arg: at}, into).read(function)

    def process(self, path: str, name: str, into: Sections) -> None:
        """The keys that a process class and its bases ask their config for, "" being the process itself."""
        for file, definition in self.lineage(path, name):
            if (file, definition.name) not in self._processes:
                self._processes[file, definition.name] = self._asked(file, definition)
            for at, keys in self._processes[file, definition.name].items():
                into[at] = {**keys, **into.get(at, {})}

    def _asked(self, file: str, definition: ast.ClassDef) -> Sections:
        lines = (self.sources.text(file) or b"").split(b"\n")
        made: Sections = {}
        for function in definition.body:
            if not isinstance(function, ast.FunctionDef):
                continue
            text = b"\n".join(lines[function.lineno - 1 : function.end_lineno])
            if b"get_conf(" in text or b"config.get(" in text or b"config[" in text:
                places = {"self.config": "", **({"config": ""} if function.name == "__init__" else {})}
                _Reader(self, file, places, made).read(function)
        return made

    def key(self, file: str, default: ast.expr | None, annotation: ast.expr | None) -> Key:
        """What default and annotation say about a key. The kind of a default counts more than an annotation."""
        if file not in self._constants:
            tree = self.sources.tree(file)
            body = tree.body if tree is not None else []
            self._literals[file], self._constants[file] = literal_types(body), constants(body)
        literals, values = self._literals[file], self._constants[file]
        value = folded(default, values, _NOT) if default is not None else None
        if not isinstance(value, bool | int | float | str | list | dict | None):
            value = _NOT
        choices: tuple[str, ...] = ()
        kind: Kind = ""
        for node in ast.walk(annotation) if annotation is not None else ():
            if isinstance(node, ast.Name) and node.id in literals:
                choices, kind = literals[node.id], "str"
            elif isinstance(node, ast.Name) and not kind:
                kind = _KINDS.get(node.id, "")
        if value is not _NOT and value is not None:
            kind = cast(Kind, type(value).__name__)
        return Key(kind, None if value is _NOT else value, value is not _NOT and default is not None, choices)


class _Reader(ast.NodeVisitor):
    """One function, in the order in which it is written. `places` are the names bound to parts of the config."""

    def __init__(self, reads: Reads, file: str, places: dict[str, str], into: Sections) -> None:
        self.reads, self.file, self.places, self.into = reads, file, places, into

    def read(self, function: ast.FunctionDef) -> None:
        for statement in function.body:
            self.visit(statement)

    def place(self, node: ast.expr | None) -> str | None:
        """Which part of the config an expression is, None where it is something else."""
        match node:
            case ast.Name(name):
                return self.places.get(name)
            case ast.Attribute(ast.Name("self"), name):
                return self.places.get(f"self.{name}")
            case ast.Call(ast.Attribute(ast.Name("self"), "get_conf"), [ast.Constant(str() as key), *_]):
                return key.replace(".", "/")
            case ast.Call(ast.Attribute(owner, "get" | "pop"), [ast.Constant(str() as key), *_]):
                return self._below(owner, key)
            case ast.Subscript(owner, ast.Constant(str() as key)):
                return self._below(owner, key)
            case ast.BoolOp(_, [first, *_]) | ast.IfExp(_, first, _):
                return self.place(first)
            case ast.Call(ast.Name(), [first, *_], []):  # a copy, or the same with its defaults filled in
                return self.place(first) if isinstance(first, ast.Name) else None
        return None

    def _below(self, owner: ast.expr, key: str) -> str | None:
        at = self.place(owner)
        return None if at is None else f"{at}/{key}".lstrip("/")

    def note(self, path: str, default: ast.expr | None, annotation: ast.expr | None) -> None:
        """Keep a key where its section is one that the source builds; the default that is written first counts."""
        section, _, name = path.rpartition("/")
        known = self.into.setdefault("", {}) if section == "" else self.into.get(section)
        if known is None:
            return
        made = self.reads.key(self.file, default, annotation)
        old = known.get(name)
        if old is None or (not old.has_default and made.has_default and old.kind == ""):
            known[name] = made if old is None or not old.choices else replace(made, choices=old.choices)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self._bind(target, node.value, None)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._bind(node.target, node.value, node.annotation)
            self.visit(node.value)

    def _bind(self, target: ast.expr, value: ast.expr, annotation: ast.expr | None) -> None:
        at = self.place(value)
        name = target.id if isinstance(target, ast.Name) else None
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
            name = f"self.{target.attr}"
        if name is None or (at is None and not isinstance(value, ast.Dict)):
            return
        if at is not None:
            self.places[name] = at
            if annotation is not None and isinstance(value, ast.Call):
                self.note(at, value.args[1] if len(value.args) > 1 else None, annotation)

    def visit_For(self, node: ast.For) -> None:
        self._loop(node.target, node.iter)
        self.generic_visit(node)

    def visit_ListComp(self, node: ast.ListComp) -> None:
        for generator in node.generators:
            self.visit(generator.iter)
            self._loop(generator.target, generator.iter)
        self.visit(node.elt)

    def _loop(self, target: ast.expr, iterable: ast.expr) -> None:
        at = self.place(iterable)
        if at is not None and isinstance(target, ast.Name):
            self.places[target.id] = f"{at}/*"

    def visit_Subscript(self, node: ast.Subscript) -> None:
        at = self.place(node)
        if at is not None and isinstance(node.ctx, ast.Load):
            self.note(at, None, None)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        at = self.place(node)
        if at is not None and isinstance(node.func, ast.Attribute):
            self.note(at, node.args[1] if len(node.args) > 1 else None, None)
        if isinstance(node.func, ast.Name):
            for keyword in node.keywords:
                given = self.place(keyword.value) if keyword.arg is None else None
                if given is not None:
                    self.reads.section(self.file, node.func.id, given, len(node.args), self.into)
        self.generic_visit(node)
