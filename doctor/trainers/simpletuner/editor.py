"""What SimpleTuner's files look like to an editor."""

from __future__ import annotations

from typing import Any

from ...model.schema import Schema
from ...schema.editor import section_schema


def body(schema: Schema) -> dict[str, Any]:
    """The options, with or without dashes, as they are or as its interface saves them; or the file of datasets."""
    options = section_schema(schema, "", strict=False)
    plain: dict[str, Any] = options["properties"]
    for old, new in schema.renamed.items():
        plain[old] = {"deprecated": True, "description": f"Now called {new}." if new else "Taken and dropped."}
    dashed = {f"--{name}": {"$ref": f"#/$defs/options/properties/{name}"} for name in plain}
    options["properties"] = {**plain, **dashed}
    return {
        "type": ["object", "array"],
        "if": {"type": "array"},
        "then": {"items": section_schema(schema, "datasets/*", strict=False)},
        "else": {
            "if": {"required": ["_metadata", "config"]},
            "then": {"properties": {"config": {"$ref": "#/$defs/options"}}},
            "else": {"$ref": "#/$defs/options"},
        },
        "$defs": {"options": options},
    }
