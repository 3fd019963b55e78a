"""Sections of a Schema as JSON Schema, which editors read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..model.schema import Key, Schema

Hovers = Mapping[str, tuple[str, str]]
"""What is known of a key beside its default, by its path: the rule that speaks of it, and what it says."""


def section_schema(schema: Schema, at: str, hovers: Hovers | None = None, *, strict: bool = True) -> dict[str, Any]:
    """A section with the sections inside it. Without `strict` a value that the source does not name is taken, too."""
    properties: dict[str, Any] = {}
    for name, key in schema.sections[at].items():
        path = f"{at}/{name}".lstrip("/")
        if path in schema.sections:
            made = section_schema(schema, path, hovers, strict=strict)
        elif f"{path}/*" in schema.sections:
            listed = section_schema(schema, f"{path}/*", hovers, strict=strict)
            made = {"type": ["array", "null"], "items": listed}
        else:
            made = _value(key, strict)
        if text := _hover(key, (hovers or {}).get(path)):
            made["description"] = text
        if key.has_default and key.default is not None:
            made["default"] = key.default
        properties[name] = made
    return {"type": ["object", "null"], "properties": properties, "additionalProperties": False}


def _value(key: Key, strict: bool) -> dict[str, Any]:
    """No narrower than what the trainer takes: SimpleTuner and TOML turn texts into numbers, `${NAME}` may be any."""
    if key.choices and key.kind in ("str", ""):
        known: dict[str, Any] = {"enum": [*key.choices, None]}
        return known if key.strict and strict else {"anyOf": [known, {}]}
    if key.kind == "bool":
        return {"type": ["boolean", "string", "null"]}
    if key.kind in ("int", "float"):
        return {"type": ["number", "array", "string", "null"]}
    return {}


def _hover(key: Key, known: tuple[str, str] | None) -> str:
    """One or two sentences about a key; "" where nothing is known of it."""
    said: list[str] = []
    if key.has_default and key.default is not None:
        shown = str(key.default).lower() if isinstance(key.default, bool) else key.default
        said.append(f"Default: {repr(shown) if isinstance(key.default, str) else shown}.")
    if known is not None:
        said.append(f"{known[1]} (zdoctor explain {known[0]})")
    elif key.strict:
        said.append("Any other value stops the trainer. (zdoctor explain CFG004)")
    return " ".join(said)
