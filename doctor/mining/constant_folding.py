"""Expressions of a syntax tree become values where they are literals, or made of such by a few operations."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any, cast

from ..model.schema import Kind

MOST_ITERATIONS = 400
NOT_LITERAL = object()
KINDS: Mapping[str, Kind] = {
    "int": "int", "float": "float", "int_or_float": "float", "_int_or_float": "float", "bool": "bool", "str": "str",
    "list": "list", "List": "list", "tuple": "list", "Tuple": "list", "dict": "dict", "Dict": "dict",
}  # fmt: skip


class NotLiteral(Exception):
    """The expression depends on something that only a running program knows."""


def fold(node: ast.AST | None, names: Mapping[str, Any]) -> Any:
    """The value of an expression, given the values of some names. Raises NotLiteral."""
    match node:
        case ast.Constant(value):
            return value
        case ast.Name(name) if name in names:
            return names[name]
        case ast.List(entries) | ast.Tuple(entries) | ast.Set(entries):
            return [item for entry in entries for item in _spread(entry, names)]
        case ast.Dict(keys, values):
            return {fold(key, names): fold(value, names) for key, value in zip(keys, values, strict=True)}
        case ast.JoinedStr(parts):
            return "".join(str(fold(part, names)) for part in parts)
        case ast.FormattedValue(value):
            return fold(value, names)
        case ast.UnaryOp(ast.USub(), operand):
            return _computed(fold(operand, names), ast.Mult(), -1)
        case ast.BinOp(left, operator, right):
            return _computed(fold(left, names), operator, fold(right, names))
        case ast.ListComp(element, [loop]) | ast.GeneratorExp(element, [loop]) if not loop.ifs:
            return [fold(element, inner) for inner in iterations(loop.target, loop.iter, names)]
        case ast.DictComp(key, value, [loop]) if not loop.ifs:
            made = iterations(loop.target, loop.iter, names)
            return {fold(key, inner): fold(value, inner) for inner in made}
        case ast.Call(function, arguments, []):
            return _called(function, arguments, names)
        case ast.Subscript(owner, index):
            return _indexed(owner, fold(index, names), names)
    raise NotLiteral


def _indexed(owner: ast.expr, index: Any, names: Mapping[str, Any]) -> Any:
    if isinstance(owner, ast.Name) and owner.id == "Literal":
        return index if isinstance(index, list) else [index]
    try:
        return fold(owner, names)[index]
    except (LookupError, TypeError):
        raise NotLiteral from None


def _computed(left: Any, operator: ast.operator, right: Any) -> Any:
    if isinstance(operator, ast.Add) and type(left) is type(right):
        return left + right
    if isinstance(operator, ast.Mult) and isinstance(left, int | float) and isinstance(right, int | float):
        return left * right
    raise NotLiteral


def _called(function: ast.expr, arguments: list[ast.expr], names: Mapping[str, Any]) -> Any:
    match function, [fold(argument, names) for argument in arguments]:
        case ast.Name("range"), [_, *_] as limits:
            return list(range(*limits)[:MOST_ITERATIONS])
        case ast.Name("list" | "tuple" | "sorted" | "set" | "frozenset"), [argument]:
            return list(argument)
        case ast.Attribute(owner, "keys"), []:
            return list(fold(owner, names))
        case ast.Attribute(owner, "lower"), []:
            return str(fold(owner, names)).lower()
    raise NotLiteral


def _spread(entry: ast.expr, names: Mapping[str, Any]) -> list[Any]:
    return list(fold(entry.value, names)) if isinstance(entry, ast.Starred) else [fold(entry, names)]


def iterations(target: ast.expr, iterable: ast.expr, names: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The names in each iteration of a loop over literals. Raises NotLiteral where it is over something else."""
    values = folded(iterable, names)
    if not isinstance(values, list | tuple | dict):
        raise NotLiteral
    for value in list(values)[:MOST_ITERATIONS]:
        match target:
            case ast.Name(name):
                yield {**names, name: value}
            case ast.Tuple(parts) if isinstance(value, list | tuple) and len(parts) == len(value):
                yield {**names, **{p.id: v for p, v in zip(parts, value, strict=True) if isinstance(p, ast.Name)}}
            case _:
                raise NotLiteral


def folded(node: ast.AST | None, names: Mapping[str, Any], otherwise: Any = None) -> Any:
    """As fold, with a value for what is no literal."""
    try:
        return fold(node, names)
    except (NotLiteral, TypeError, ValueError, RecursionError):
        return otherwise


def texts(value: Any) -> tuple[str, ...]:
    """The texts in a folded value: those of a list, the keys of a dictionary, or the one that it is."""
    return tuple(entry for entry in (value if isinstance(value, list | dict) else [value]) if isinstance(entry, str))


def kind_of(value: Any) -> Kind:
    return "" if value is None else cast(Kind, type(value).__name__)


def constants(body: list[ast.stmt]) -> dict[str, Any]:
    """The names that are bound to literals in a body, types of the form `Literal["a", "b"]` as their values."""
    known: dict[str, Any] = {}
    for statement in body:
        match statement:
            case ast.Assign([ast.Name(name)], value) | ast.AnnAssign(ast.Name(name), _, value) if value is not None:
                made = folded(value, known, NOT_LITERAL)
                if made is not NOT_LITERAL:
                    known[name] = made
    return known
