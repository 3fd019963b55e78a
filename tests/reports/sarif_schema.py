"""The part of SARIF 2.1.0 that zdoctor writes, as a JSON schema; stricter than the standard, which also allows more.

Written after the prose of the standard (sections named) and GitHub's page on SARIF support.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def closed(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    return {
        "type": "object",
        "required": sorted(required),
        "properties": {**required, **(optional or {})},
        "additionalProperties": False,
    }


def several(item: Schema, least: int = 0) -> Schema:
    return {"type": "array", "items": item, "minItems": least}


TEXT: Schema = {"type": "string", "minLength": 1}
COUNT: Schema = {"type": "integer", "minimum": 1}
INDEX: Schema = {"type": "integer", "minimum": 0}
LEVEL: Schema = {"enum": ["error", "warning", "note"]}
MESSAGE = closed({"text": {"type": "string"}})  # 3.11
DESCRIPTION = closed({"text": {**TEXT, "maxLength": 1024}})  # GitHub cuts longer ones off
URI: Schema = {"type": "string", "format": "uri-reference", "pattern": r"^[\x21-\x7e]+$", "not": {"pattern": r"\\"}}
ARTIFACT_LOCATION = closed({"uri": URI})  # 3.4
REGION = closed(  # 3.30
    {"startLine": COUNT}, {"startColumn": COUNT, "endLine": COUNT, "endColumn": COUNT}
)
LOCATION = closed(  # 3.28; GitHub refuses a result without an artifact's location
    {"physicalLocation": closed({"artifactLocation": ARTIFACT_LOCATION}, {"region": REGION})},
    {"logicalLocations": several(closed({"name": {"type": "string"}, "fullyQualifiedName": TEXT}), 1)},
)
REPLACEMENT = closed(  # 3.57
    {
        "deletedRegion": {**REGION, "required": ["startLine", "startColumn", "endLine", "endColumn"]},
        "insertedContent": MESSAGE,
    }
)
FIX = closed(  # 3.55
    {
        "description": MESSAGE,
        "artifactChanges": several(
            closed({"artifactLocation": ARTIFACT_LOCATION, "replacements": several(REPLACEMENT, 1)}), 1
        ),
    }
)
RESULT = closed(  # 3.27
    {
        "ruleId": TEXT,
        "level": LEVEL,
        "message": MESSAGE,
        "locations": several(LOCATION, 1),
        "partialFingerprints": closed({"ruleAndKey/v1": TEXT}),
    },
    {"ruleIndex": INDEX, "fixes": several(FIX, 1), "baselineState": {"enum": ["new", "unchanged"]}},
)
RULE = closed(  # 3.49
    {
        "id": TEXT,
        "name": TEXT,
        "shortDescription": DESCRIPTION,
        "fullDescription": DESCRIPTION,
        "help": closed({"text": TEXT, "markdown": TEXT}),
        "defaultConfiguration": closed({"level": LEVEL}),
    },
    {"helpUri": {"type": "string", "format": "uri"}},
)
NOTIFICATION = closed(  # 3.58
    {"descriptor": closed({"id": TEXT}), "level": LEVEL, "message": MESSAGE},
    {"associatedRule": closed({"id": TEXT}, {"index": INDEX})},
)
DRIVER = closed(  # 3.19
    {
        "name": {"const": "zdoctor"},
        "rules": several(RULE),
        "notifications": several(
            closed(
                {"id": TEXT, "shortDescription": DESCRIPTION, "fullDescription": DESCRIPTION, "help": DESCRIPTION}
            ),
            1,
        ),
    },
    {
        "version": TEXT,
        "semanticVersion": {"type": "string", "pattern": r"^\d+\.\d+\.\d+"},
        "informationUri": {"type": "string", "format": "uri"},
    },
)
INVOCATION = closed(  # 3.20
    {
        "executionSuccessful": {"type": "boolean"},
        "exitCode": {"enum": [0, 1, 3]},
        "toolExecutionNotifications": several(NOTIFICATION),
    }
)
RUN = closed(  # 3.14
    {
        "tool": closed({"driver": DRIVER}),
        "automationDetails": closed({"id": {"type": "string", "pattern": "^zdoctor/"}}),
        "invocations": {**several(INVOCATION, 1), "maxItems": 1},
        "columnKind": {"const": "unicodeCodePoints"},
        "results": several(RESULT),
        "properties": {"type": "object"},
    }
)
SARIF = closed(  # 3.13
    {"$schema": {"type": "string", "format": "uri"}, "version": {"const": "2.1.0"}, "runs": several(RUN, 1)}
)
