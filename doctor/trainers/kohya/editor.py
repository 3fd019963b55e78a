"""What the files of sd-scripts and musubi-tuner look like to an editor."""

from __future__ import annotations

from typing import Any

from ...model.schema import Schema
from ...schema.editor import section_schema


def body(schema: Schema) -> dict[str, Any]:
    """A config file, whose sections have any name and no meaning, or a dataset file."""
    options = section_schema(schema, "")
    return {
        "type": "object",
        "properties": {
            **options["properties"],
            "general": section_schema(schema, "general"),
            "datasets": {"type": "array", "items": section_schema(schema, "datasets/*")},
        },
        "additionalProperties": {"$ref": "#/$defs/options"},
        "$defs": {"options": options},
    }
