"""The keys that a class reads from its mappings: `kwargs.get('x', default)`, `get_conf('x')`, `Section(**x)`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..configs.python_tree import dotted
from ..model.record import replace
from ..model.schema import Key, Kind
from .constant_folding import KINDS, NOT_LITERAL, folded, kind_of, texts
from .sources import Sources

Sections = dict[str, dict[str, Key]]


class Reads:
    """The keys that classes of a checkout read, section by section."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self._asked: dict[tuple[str, str], Sections] = {}

    def lineage(self, path: str, name: str) -> list[tuple[str, ast.ClassDef]]:
        """A class and its bases as far as they lie in the checkout, nearest first."""
        made: list[tuple[str, ast.ClassDef]] = []
        waiting = [(path, name)]
        while waiting and len(made) < 20:
            match self.sources.defined(*waiting.pop(0)):
                case (file, ast.ClassDef(bases=bases) as definition) if (file, definition) not in made:
                    made.append((file, definition))
                    waiting += [(file, base.id) for base in bases if isinstance(base, ast.Name)]
        return made

    def section(self, path: str, name: str, at: str, positional: int, into: Sections) -> None:
        """The keys of a class that takes a mapping as keyword arguments, as the section `at`."""
        for file, definition in self.lineage(path, name):
            known = into.setdefault(at, {})
            is_record = any("dataclass" in ast.dump(decorator) for decorator in definition.decorator_list)
            for statement in definition.body:
                match statement:
                    case ast.AnnAssign(ast.Name(field), annotation, default) if is_record:
                        known.setdefault(field, self.key(file, default, annotation))
                    case ast.FunctionDef("__init__"):
                        self._constructor(file, statement, at, positional, into)

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
            if (file, definition.name) not in self._asked:
                made = self._asked[file, definition.name] = {}
                for function in definition.body:
                    if isinstance(function, ast.FunctionDef):
                        paths = {"self.config": "", **({"config": ""} if function.name == "__init__" else {})}
                        _Reader(self, file, paths, made).read(function)
            for at, keys in self._asked[file, definition.name].items():
                into[at] = {**keys, **into.get(at, {})}

    def key(self, file: str, default: ast.expr | None, annotation: ast.expr | None) -> Key:
        """What default and annotation say about a key. The kind of a default counts more than an annotation."""
        constants = self.sources.constants(file)
        value = folded(default, constants, NOT_LITERAL)
        if not isinstance(value, bool | int | float | str | list | dict | None):
            value = NOT_LITERAL
        choices: tuple[str, ...] = ()
        kind: Kind = ""
        for node in ast.walk(annotation) if annotation is not None else ():
            if isinstance(node, ast.Name) and isinstance(constants.get(node.id), list):
                choices, kind = texts(constants[node.id]), "str"
            elif isinstance(node, ast.Name) and not kind:
                kind = KINDS.get(node.id, "")
        if value is NOT_LITERAL:
            return Key(kind, choices=choices)
        return Key(kind_of(value) or kind, value, True, choices)


class _Reader(ast.NodeVisitor):
    """One function is read in the order in which it is written.

    `paths` holds what its names stand for: parts of the config, each by its path.
    """

    def __init__(self, reads: Reads, file: str, paths: dict[str, str], into: Sections) -> None:
        self.reads, self.file, self.paths, self.into = reads, file, paths, into

    def read(self, function: ast.FunctionDef) -> None:
        for statement in function.body:
            self.visit(statement)

    def path_of(self, node: ast.expr | None) -> str | None:
        """Which part of the config an expression is, None where it is something else."""
        match node:
            case ast.Call(ast.Attribute(ast.Name("self"), "get_conf"), [ast.Constant(str() as key), *_]):
                return key.replace(".", "/")
            case ast.Call(ast.Attribute(owner, "get" | "pop"), [ast.Constant(str() as key), *_]) | ast.Subscript(
                owner, ast.Constant(str() as key)
            ):
                at = self.path_of(owner)
                return None if at is None else f"{at}/{key}".lstrip("/")
            case ast.BoolOp(_, [first, *_]) | ast.IfExp(_, first, _):
                return self.path_of(first)
            case ast.Call(ast.Name(), [ast.Name(name), *_], []):  # a copy, or the same with its defaults filled in
                return self.paths.get(name)
            case ast.Name() | ast.Attribute():
                return self.paths.get(dotted(node))
        return None

    def note(self, path: str, default: ast.expr | None = None, annotation: ast.expr | None = None) -> None:
        """Keep a key where its section is one that the source builds; the default that is written first counts."""
        section, _, name = path.rpartition("/")
        known = self.into.setdefault("", {}) if section == "" else self.into.get(section)
        if known is None:
            return
        made = self.reads.key(self.file, default, annotation)
        old = known.get(name)
        if old is None or (not old.has_default and made.has_default and old.kind == ""):
            known[name] = made if old is None or not old.choices else replace(made, choices=old.choices)

    def bind(self, target: ast.expr, value: ast.expr, inside: str = "") -> str | None:
        """Remember what part of the config a name stands for from now on."""
        at = self.path_of(value)
        if at is None or not dotted(target):
            return None
        self.paths[dotted(target)] = at + inside
        return at

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self.bind(target, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            at = self.bind(node.target, node.value)
            if at is not None and isinstance(node.value, ast.Call):
                self.note(at, _default(node.value), node.annotation)
            self.visit(node.value)

    def visit_For(self, node: ast.For) -> None:
        self.bind(node.target, node.iter, "/*")
        self.generic_visit(node)

    def visit_ListComp(self, node: ast.ListComp) -> None:
        for generator in node.generators:
            self.visit(generator.iter)
            self.bind(generator.target, generator.iter, "/*")
        self.visit(node.elt)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        at = self.path_of(node)
        if at is not None and isinstance(node.ctx, ast.Load):
            self.note(at)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        at = self.path_of(node)
        if at is not None and isinstance(node.func, ast.Attribute):
            self.note(at, _default(node))
        if isinstance(node.func, ast.Name):
            for keyword in node.keywords:
                given = self.path_of(keyword.value) if keyword.arg is None else None
                if given is not None:
                    self.reads.section(self.file, node.func.id, given, len(node.args), self.into)
        self.generic_visit(node)


def forms_asked(function: ast.AST) -> Iterator[str]:
    """The keys of whose values a function asks what kind they are, and may then take one of another kind.

    A key that is handed to a function inside is asked for as that one does with what it is handed.
    """
    inner = (node for node in ast.walk(function) if isinstance(node, ast.FunctionDef) and node is not function)
    handed = {node.name: set(forms_asked(node)) for node in inner}
    held: dict[str, set[str]] = {}
    for node in ast.walk(function):
        match node:
            case ast.Assign([target], value) | ast.AnnAssign(target, value) if value is not None:
                held.setdefault(dotted(target), set()).update(_keys_in(value))
            case ast.Call(ast.Name("isinstance"), [asked, _]):
                yield from held.get(dotted(asked), ())
                yield from _keys_in(asked)
            case ast.Call(ast.Name(name), [ast.Constant(str() as key), *_]) if handed.get(name):
                yield key


def _keys_in(value: ast.AST) -> Iterator[str]:
    """The keys that an expression reads; of one that is a parameter, its name."""
    for node in ast.walk(value):
        match node:
            case ast.Call(ast.Attribute(_, "get" | "pop"), [ast.Constant(str() as key), *_]):
                yield key
            case ast.Call(ast.Attribute(_, "get" | "pop"), [ast.Name(key), *_]):
                yield key
            case ast.Subscript(_, ast.Constant(str() as key)):
                yield key


def _default(call: ast.Call) -> ast.expr | None:
    return call.args[1] if len(call.args) > 1 else None
