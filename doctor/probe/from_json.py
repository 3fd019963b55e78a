"""Records are read from JSON by the types of their fields; the first thing that is wrong is said by its place."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

Record = TypeVar("Record")
Defaults = Mapping[type, Mapping[str, Any]]
_NONE = type(None)

_types_of: Callable[[Any], dict[str, Any]] = cache(get_type_hints)
_WORDS: Mapping[Any, str] = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


class Malformed(Exception):
    """What is wrong, with its place ("gpus[0].memory_total is missing")."""


def from_json(
    kind: type[Record], data: Any, place: str = "", defaults: Defaults = types.MappingProxyType({})
) -> Record:
    """A record from an object. What it need not hold may be null; keys that the record lacks are passed over.

    `defaults` are, for some kinds of records, what an object may leave out. Raises Malformed.
    """
    if not isinstance(data, Mapping):
        raise Malformed(f"{place} is no object")
    hints, made = _types_of(kind), dict(defaults.get(kind, {}))
    for field in fields(kind):  # type: ignore[arg-type]
        name, hint, at = field.name, hints[field.name], f"{place}.{field.name}".lstrip(".")
        if name in made or (field.default, field.default_factory) != (MISSING, MISSING):
            if data.get(name) is None:
                continue
            hint = hint | None
        elif name not in data:
            raise Malformed(f"{at} is missing")
        made[name] = _value(hint, data[name], at, defaults)
    return kind(**made)


def _value(hint: Any, data: Any, place: str, defaults: Defaults) -> Any:
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    wanted, kind = options[0], get_origin(options[0]) or options[0]
    inside, or_null = get_args(wanted), " or null" if _NONE in options else ""
    if kind is Any or (data is None and or_null) or (isinstance(data, str) and str in options):
        return data
    if is_dataclass(kind):
        return from_json(wanted, data, place, defaults)
    if kind is Literal:
        if data in inside:
            return data
        raise Malformed(f"{place} is {data!r}, not one of {', '.join(inside)}")
    if kind is tuple:
        return _tuple(inside, data, place, or_null, defaults)
    if issubclass(kind, Mapping):
        if not isinstance(data, Mapping):
            raise Malformed(f"{place} is no object")
        return {name: _value(inside[1], value, f"{place}.{name}", defaults) for name, value in data.items()}
    if not isinstance(data, (int, float) if kind is float else kind) or (isinstance(data, bool) and kind is not bool):
        raise Malformed(f"{place} is {data!r}, not {_WORDS[kind]}{or_null}")
    return data


def _tuple(inside: tuple[Any, ...], data: Any, place: str, or_null: str, defaults: Defaults) -> tuple[Any, ...]:
    """A list of any length, or one of exactly two whole numbers."""
    if not isinstance(data, list | tuple):
        raise Malformed(
            f"{place} is no list" if is_dataclass(inside[0]) else f"{place} is {data!r}, not a list{or_null}"
        )
    if inside[-1] is ...:
        return tuple(_value(inside[0], value, f"{place}[{index}]", defaults) for index, value in enumerate(data))
    if len(data) != len(inside) or any(type(value) is not int for value in data):
        raise Malformed(f"{place} is {data!r}, not two whole numbers")
    return tuple(data)
