"""A Schema as JSON Schema (draft 2020-12), for editors: completion, hover texts, unknown keys underlined."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..model.schema import Key, Schema, Section
from .hovers import hover

DRAFT = "https://json-schema.org/draft/2020-12/schema"
_JOBS = ("extension", "train", "extract", "generate", "mod")


def editor_schema(schema: Schema) -> dict[str, Any]:
    """What the trainer's config files look like. The keys of extensions are not known and never forbidden."""
    body = {"ai-toolkit": _ai_toolkit, "SimpleTuner": _simpletuner}.get(schema.trainer, _kohya)(schema)
    return {
        "$schema": DRAFT,
        "title": f"{schema.trainer} config",
        "$comment": f"mined by zdoctor from {schema.repository} {schema.commit}".rstrip(),
        **body,
    }


def _ai_toolkit(schema: Schema) -> dict[str, Any]:
    trainers = sorted(u for u in schema.processes if schema.sections.get(f"{u}:") == schema.sections.get(""))
    process = {
        "type": "object",
        "required": ["type"],
        "properties": {"type": {"type": "string", "examples": list(schema.processes)}},
        "if": {"properties": {"type": {"enum": trainers}}},
        "then": {"$ref": "#/$defs/process"},
    }
    return {
        "type": "object",
        "required": ["job", "config"],
        "properties": {
            "job": {"enum": list(_JOBS), "description": "For training a LoRA: extension."},
            "config": {
                "type": "object",
                "required": ["name", "process"],
                "properties": {"name": {"type": "string"}, "process": {"type": "array", "items": process}},
            },
            "meta": {"type": "object", "description": "Written into the saved LoRA."},
        },
        "$defs": {"process": _object(schema, "", schema.sections[""])},
    }


def _simpletuner(schema: Schema) -> dict[str, Any]:
    options = _object(schema, "", schema.sections[""])
    plain: dict[str, Any] = options["properties"]
    for old, new in schema.renamed.items():
        plain[old] = {"deprecated": True, "description": f"Now called {new}." if new else "Taken and dropped."}
    dashed = {f"--{name}": {"$ref": f"#/$defs/options/properties/{name}"} for name in plain}
    options["properties"] = {**plain, **dashed}
    return {
        "type": ["object", "array"],
        "if": {"type": "array"},
        "then": {"items": _object(schema, "datasets/*", schema.sections["datasets/*"])},
        "else": {
            "if": {"required": ["_metadata", "config"]},
            "then": {"properties": {"config": {"$ref": "#/$defs/options"}}},
            "else": {"$ref": "#/$defs/options"},
        },
        "$defs": {"options": options},
    }


def _kohya(schema: Schema) -> dict[str, Any]:
    """A config file, whose sections have any name and no meaning, or a dataset file."""
    options = _object(schema, "", schema.sections[""])
    return {
        "type": "object",
        "properties": {
            **options["properties"],
            "general": _object(schema, "general", schema.sections["general"]),
            "datasets": {"type": "array", "items": _object(schema, "datasets/*", schema.sections["datasets/*"])},
        },
        "additionalProperties": {"$ref": "#/$defs/options"},
        "$defs": {"options": options},
    }


def _object(schema: Schema, at: str, keys: Section) -> dict[str, Any]:
    """A section with its own sections inside."""
    prefix = f"{at}/" if at else ""
    properties = {name: _property(schema, prefix + name, key) for name, key in keys.items()}
    return {"type": ["object", "null"], "properties": properties, "additionalProperties": False}


def _property(schema: Schema, path: str, key: Key) -> dict[str, Any]:
    inside, listed = schema.section(path), schema.section(f"{path}/*")
    if inside is not None:
        made = _object(schema, path, inside)
    elif listed is not None:
        made = {"type": ["array", "null"], "items": _object(schema, f"{path}/*", listed)}
    else:
        made = _value(schema.trainer, key)
    text = hover(schema.trainer, path, key)
    return {**made, **({"description": text} if text else {}), **_default(key)}


def _default(key: Key) -> Mapping[str, Any]:
    return {"default": key.default} if key.has_default and key.default is not None else {}


def _value(trainer: str, key: Key) -> dict[str, Any]:
    """No narrower than what the trainer takes: SimpleTuner and TOML turn texts into numbers, `${NAME}` may be any."""
    if key.choices and key.kind in ("str", ""):
        known: dict[str, Any] = {"enum": [*key.choices, None]}
        return known if key.strict and trainer != "SimpleTuner" else {"anyOf": [known, {}]}
    if key.kind == "bool":
        return {"type": ["boolean", "string", "null"]}
    if key.kind in ("int", "float"):
        return {"type": ["number", "array", "string", "null"]}
    return {}
