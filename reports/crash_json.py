"""Why a run ended as one JSON object, schema zdoctor.explanation/1. Changes are additive only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..doctor.model.crashes import Comparison, Explanation, Failure
from .crash import Told
from .json import dumps, picked

SCHEMA = "zdoctor.explanation/1"


def render(data: Mapping[str, Any]) -> str:
    """One JSON object, one trailing newline."""
    return dumps(data)


def as_data(
    told: Explanation, rules: Mapping[str, Told], config: str | None = None, beside: Comparison | None = None
) -> dict[str, Any]:
    failure, known = told.failure, told.known
    lead = rules[told.rules[0]] if told.rules else None
    return {
        "schema": SCHEMA,
        "failed": failure is not None,
        "known": known is not None or bool(told.rules),
        "failure": failure and _failure(failure),
        "while_loading": told.site or None,
        "cause": known.cause if known else lead.cause if lead else None,
        "do": known.do if known else lead.repair if lead else None,
        "not": known.avoid or None if known else None,
        "source": known.source or None if known else None,
        "config": config,
        "rules": [{"rule": id, **picked(rules[id], "name", "title", "confirmed", "said")} for id in told.rules],
        "other_failures": told.others,
        "versions": dict(told.versions),
        "excerpt": told.excerpt,
        **({"beside": _comparison(beside)} if beside is not None else {}),
    }


def _failure(failure: Failure) -> dict[str, Any]:
    frame = failure.frame
    return {
        **picked(failure, "type", "message"),
        "line": failure.at,
        "frame": frame and picked(frame, "file", "line", "function", "code"),
        "came_from": [picked(part, "type", "message") for part in failure.chain[1:]],
    }


def _comparison(seen: Comparison) -> dict[str, Any]:
    return {
        **picked(seen, "parted", "common", "then", "bad_loss", "good_losses", "bad_losses"),
        "changed": [picked(change, "good", "bad", "at") for change in seen.changed],
        "warnings": [{"line": at, "text": text} for at, text in seen.warnings],
        "others": [{"line": at, "text": text} for at, text in seen.others],
    }
