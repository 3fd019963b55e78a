"""Literal values out of syntax trees: constants, and what a few harmless operations make of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

MOST_TURNS = 400


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
            return "".join(
                str(fold(part.value, names)) if isinstance(part, ast.FormattedValue) else str(fold(part, names))
                for part in parts
            )
        case ast.UnaryOp(ast.USub(), operand):
            value = fold(operand, names)
            if isinstance(value, int | float):
                return -value
        case ast.BinOp(left, ast.Add(), right):
            one, other = fold(left, names), fold(right, names)
            if type(one) is type(other):
                return one + other
        case ast.BinOp(left, ast.Mult(), right):
            one, other = fold(left, names), fold(right, names)
            if isinstance(one, int | float) and isinstance(other, int | float):
                return one * other
        case ast.ListComp(element, [ast.comprehension(target, iterable, [], 0)]) | ast.GeneratorExp(
            element, [ast.comprehension(target, iterable, [], 0)]
        ):
            return [fold(element, inner) for inner in turns(target, iterable, names)]
        case ast.DictComp(key, value, [ast.comprehension(target, iterable, [], 0)]):
            return {fold(key, inner): fold(value, inner) for inner in turns(target, iterable, names)}
        case ast.Call(ast.Name("range"), [*arguments], []) if arguments:
            return list(range(*(fold(argument, names) for argument in arguments))[:MOST_TURNS])
        case ast.Call(ast.Name("list" | "tuple" | "sorted" | "set" | "frozenset"), [argument], []):
            return list(fold(argument, names))
        case ast.Call(ast.Attribute(owner, "keys"), [], []):
            return list(fold(owner, names))
        case ast.Call(ast.Attribute(owner, "lower"), [], []):
            return str(fold(owner, names)).lower()
        case ast.Subscript(owner, index):
            held, at = fold(owner, names), fold(index, names)
            try:
                return held[at]
            except (LookupError, TypeError):
                raise NotLiteral from None
        case _:
            pass
    raise NotLiteral


def _spread(entry: ast.expr, names: Mapping[str, Any]) -> list[Any]:
    return list(fold(entry.value, names)) if isinstance(entry, ast.Starred) else [fold(entry, names)]


def turns(target: ast.expr, iterable: ast.expr, names: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The names in each turn of a loop over literals. Raises NotLiteral where it is over something else."""
    values = folded(iterable, names)
    if not isinstance(values, list | tuple | dict):
        raise NotLiteral
    for value in list(values)[:MOST_TURNS]:
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


def constants(body: list[ast.stmt]) -> dict[str, Any]:
    """The names that are bound to literals at the top of a module."""
    known: dict[str, Any] = {}
    for statement in body:
        match statement:
            case ast.Assign([ast.Name(name)], value) | ast.AnnAssign(ast.Name(name), _, value) if value is not None:
                made = folded(value, known, known)
                if made is not known:
                    known[name] = made
            case _:
                pass
    return known
