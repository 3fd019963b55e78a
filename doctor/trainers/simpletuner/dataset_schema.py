"""voluptuous' idiom: the dictionaries of a ConfigSanitizer that say what a dataset file may hold."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from ...model.schema import Key, Kind
from ...schema.sources import Sources

_KINDS: Mapping[str, Kind] = {"int": "int", "float": "float", "bool": "bool", "str": "str", "dict": "dict"}


def groups(sources: Sources, file: str) -> dict[str, dict[str, Key]]:
    """Name of the dictionary (`DATASET_ASCENDABLE_SCHEMA`) -> its keys."""
    found: dict[str, dict[str, Key]] = {}
    for definition in sources.statements(file, rb"class ConfigSanitizer\b"):
        for statement in definition.body if isinstance(definition, ast.ClassDef) else ():
            match statement:
                case ast.Assign([ast.Name(name)], ast.Dict(keys, values)) if name.endswith("_SCHEMA"):
                    found[name] = {
                        spelt: Key(_kind(value))
                        for key, value in zip(keys, values, strict=True)
                        if (spelt := _name(key)) is not None
                    }
                case _:
                    pass
    return found


def _name(key: ast.expr | None) -> str | None:
    match key:
        case ast.Constant(str() as name) | ast.Call(_, [ast.Constant(str() as name), *_]):  # Required("image_dir")
            return name
    return None


def _kind(value: ast.expr) -> Kind:
    match value:
        case ast.Name(name):
            return _KINDS.get(name, "")
        case ast.List():
            return "list"
        case ast.Call(ast.Name("Any"), [ast.Name("float"), *_]):
            return "float"
    return ""


def joined(found: Mapping[str, Mapping[str, Key]], *words: str) -> dict[str, Key]:
    """The keys of every dictionary whose name holds one of the words."""
    return {key: made for name, keys in found.items() if any(w in name for w in words) for key, made in keys.items()}
