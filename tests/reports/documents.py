"""The JSON schema of the documents that zdoctor prints, made of their types."""

from __future__ import annotations

import json
import types
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import jsonschema

from zdoctor.doctor.commands.schema import OUTPUT
from zdoctor.reports.cache_json import CacheDocument
from zdoctor.reports.crash_json import ComparedDocument, ExplanationDocument
from zdoctor.reports.json import ProbeDocument, ReportDocument, ReportsDocument
from zdoctor.reports.memory_json import MemoryDocument
from zdoctor.reports.repairs_json import HistoryDocument, PlanDocument
from zdoctor.reports.rules_json import RulesDocument

DOCUMENTS: Sequence[type] = (
    *(ReportDocument, ProbeDocument, ReportsDocument, PlanDocument, HistoryDocument, RulesDocument),
    *(ExplanationDocument, ComparedDocument, CacheDocument, MemoryDocument),
)
SIMPLE = {str: "string", int: "integer", bool: "boolean", type(None): "null"}
Schema = dict[str, Any]


def made() -> Schema:
    """The schema of all documents, each object of ours closed to keys that its type does not have."""
    defs: dict[str, Schema] = {}
    refs = [_schema(document, defs) for document in DOCUMENTS]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What zdoctor prints with --format json",
        "oneOf": refs,
        "$defs": dict(sorted(defs.items())),
    }


def _schema(of: Any, defs: dict[str, Schema]) -> Schema:
    inner = get_args(of)
    match get_origin(of):
        case None if of is Any:
            return {}
        case None if of is float:  # JSON has no word for what is not finite
            return {"anyOf": [{"type": "number"}, {"enum": ["nan", "inf", "-inf"]}]}
        case None if of in SIMPLE:
            return {"type": SIMPLE[of]}
        case None:
            return _object(of, defs)
        case one if one is Literal:
            return {"const": inner[0]} if len(inner) == 1 else {"enum": list(inner)}
        case one if one in (Union, types.UnionType):
            parts = [_schema(part, defs) for part in inner]
            simple = all([*part] == ["type"] for part in parts)
            return {"type": [part["type"] for part in parts]} if simple else {"anyOf": parts}
        case one if issubclass(one, Mapping):
            return {"type": "object", "additionalProperties": _schema(inner[1], defs)}
        case one if issubclass(one, Sequence):
            return {"type": "array", "items": _schema(inner[0], defs)}
    raise TypeError(f"no JSON schema for {of}")


def _object(of: Any, defs: dict[str, Schema]) -> Schema:
    """A typed dictionary, or a record of the model."""
    if of.__name__ not in defs:
        defs[of.__name__] = {}
        told = " ".join((of.__doc__ or "").split())
        known = get_type_hints(of)
        known = {"schema": known["schema"], **known} if "schema" in known else known  # tells the documents apart
        defs[of.__name__] = {
            **({"description": told} if told else {}),
            "type": "object",
            "properties": {name: _schema(part, defs) for name, part in known.items()},
            "required": list(known),
            "additionalProperties": False,
        }
    return {"$ref": f"#/$defs/{of.__name__}"}


def valid(text: str) -> Any:
    """A document that was printed, once the schema that is shipped allows it."""
    data = json.loads(text)
    _validator().validate(data)
    return data


@cache
def _validator() -> Any:
    return jsonschema.Draft202012Validator(json.loads(OUTPUT.read_text(encoding="utf-8")))
