"""What a module of Python binds, by its syntax tree: names, functions and their parameters, and what classes have."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

LAZY = ("_import_structure", "_SUBMOD_ATTRS", "_SUBMODULES", "_class_to_module")
Python = tuple[int, int]
NEWEST = (3, 99)
# Classes whose __getattr__ gives no more than the parameters of __init__.
_KNOWN_TO_ADD = ("ModelMixin", "ConfigMixin")


class Class(NamedTuple):
    """`open` where a class computes what it has."""

    name: str
    bases: tuple[str, ...]
    has: frozenset[str]
    open: bool


class Module(NamedTuple):
    """`bound` tells of each name whether it is made here; `stars` are modules of which all is imported."""

    bound: tuple[tuple[str, bool], ...]
    stars: tuple[str, ...]
    functions: tuple[tuple[str, frozenset[str]], ...]
    classes: tuple[Class, ...]


@cache
def read(text: str, roots: frozenset[str], python: Python = NEWEST) -> Module:
    """A module, as that Python takes it. Most modules are the same in several versions of a package."""
    try:
        body = list(_flat(ast.parse(text).body, python))
    except SyntaxError:
        return Module((), (), (), ())
    stars = [
        "." * node.level + (node.module or "")
        for node in body
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*"
    ]
    classes = [node for node in body if isinstance(node, ast.ClassDef)]
    offered = {*handed_out(text)}
    return Module(
        tuple((name, made or name in offered) for name, made in _bound(body, roots)),
        tuple(stars),
        tuple(_functions(body)),
        tuple(_class(node, python) for node in classes),
    )


def _flat(body: Iterable[ast.stmt], python: Python) -> Iterator[ast.stmt]:
    """The statements, those of branches too; of a question for Python's version only the branch that is taken."""
    for node in body:
        match node:
            case ast.If():
                asked = _asked(node.test, python)
                yield from _flat(node.body if asked is not False else (), python)
                yield from _flat(node.orelse if asked is not True else (), python)
            case ast.Try():
                handlers = (one for handler in node.handlers for one in handler.body)
                yield from _flat((*node.body, *handlers, *node.orelse, *node.finalbody), python)
            case ast.With():
                yield from _flat(node.body, python)
            case _:
                yield node


def _asked(test: ast.expr, python: Python) -> bool | None:
    found = re.fullmatch(r"sys\.version_info (>=|<) \(3, (\d+)\)", ast.unparse(test))
    if found is None:
        return None
    return (python >= (3, int(found[2]))) == (found[1] == ">=")


def _bound(body: Iterable[ast.stmt], roots: frozenset[str]) -> Iterator[tuple[str, bool]]:
    """The names that these statements bind, and whether they are made here."""
    for node in body:
        match node:
            case ast.FunctionDef() | ast.ClassDef() | ast.AsyncFunctionDef():
                yield from _public([node.name], made=True)
            case ast.ImportFrom() if node.level or (node.module or "").split(".")[0] in roots:
                yield from _public((alias.asname or alias.name for alias in node.names), made=False)
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                lazy = node.value is not None and any(_root(target) in LAZY for target in targets)
                names = _strings(node.value) if lazy else (one.id for one in targets if isinstance(one, ast.Name))
                yield from _public(names, made=True)
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=owner))) if _root(owner) in LAZY:
                yield from _public(_strings(node.value), made=True)


def _public(names: Iterable[str], *, made: bool) -> Iterator[tuple[str, bool]]:
    yield from ((name, made) for name in names if not re.match(r"_|\*|TF[A-Z]|Flax[A-Z]|dummy_", name))


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _strings(node: ast.AST | None) -> Iterator[str]:
    words = (one.value for one in (ast.walk(node) if node else ()) if isinstance(one, ast.Constant))
    yield from (word for word in words if isinstance(word, str) and word.isidentifier())


def handed_out(text: str) -> Iterator[str]:
    for found in re.finditer(r"^__all__ = \[([^\]]*)\]", text, re.M):
        yield from re.findall(r"[\"'](\w+)[\"']", found[1])


def _functions(body: Iterable[ast.stmt]) -> Iterator[tuple[str, frozenset[str]]]:
    for node in body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield node.name, _parameters(node)
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for part in node.body:
                if isinstance(part, ast.FunctionDef) and (part.name == "__init__" or not part.name.startswith("_")):
                    yield f"{node.name}.{part.name}", _parameters(part)


def _parameters(node: ast.FunctionDef) -> frozenset[str]:
    told = node.args
    names = {one.arg for one in (*told.args, *told.kwonlyargs)} - {"self", "cls"}
    # What a decorator hands on may be another signature.
    return frozenset(names | ({"**"} if told.kwarg or node.decorator_list else set()))


def _class(node: ast.ClassDef, python: Python) -> Class:
    """A class with its methods and what any of them writes to self."""
    body = list(_flat(node.body, python))
    methods = {part.name for part in body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)}
    has = methods | {
        target.id
        for part in body
        if isinstance(part, ast.Assign | ast.AnnAssign)
        for target in (part.targets if isinstance(part, ast.Assign) else [part.target])
        if isinstance(target, ast.Name)
    }
    has |= {
        parameter
        for made in body
        if isinstance(made, ast.FunctionDef) and made.name == "__init__"
        for parameter in _parameters(made)
    }
    for part in ast.walk(node):
        match part:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                has.add(name)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self")) | ast.Name(id="setattr")):
                has |= set(_strings(part))  # a buffer, a module, or what setattr writes
            case ast.Assign(targets=[ast.Name(id="attribute_map")], value=value):
                has |= set(_strings(value))
    return Class(
        node.name,
        tuple(base.attr if isinstance(base, ast.Attribute) else _root(base) for base in node.bases),
        frozenset(name for name in has if not name.startswith("_")),
        node.name not in _KNOWN_TO_ADD and "__getattr__" in methods,
    )
