"""A Schema as JSON Schema (draft 2020-12), for editors: completion, hover texts, unknown keys underlined."""

from __future__ import annotations

from typing import Any

from ..configs.json_schema import section_schema
from ..model.schema import Schema
from ..trainers import loaded, named

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def editor_schema(schema: Schema) -> dict[str, Any]:
    """What the trainer's config files look like: its options alone, where its record names no other form."""
    trainer = named(schema.trainer)
    body = loaded(trainer.editor) if trainer is not None and trainer.editor else None
    return {
        "$schema": DRAFT,
        "title": f"{schema.trainer} config",
        "$comment": f"mined by zdoctor from {schema.repository} {schema.commit}".rstrip(),
        **(section_schema(schema, "") if body is None else body(schema)),
    }
