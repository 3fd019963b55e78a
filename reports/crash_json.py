"""Why a run ended as one JSON object, schema zdoctor.explanation/1. Changes are additive only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict

from ..doctor.model.crashes import Changed, Comparison, Explanation, Failure, Frame, Ran
from .crash import Told
from .json import Head, head, shown


class Raised(TypedDict):
    type: str
    message: str


class ShownFailure(Raised):
    line: int
    frame: Frame | None
    came_from: list[Raised]


class ConfirmedRule(TypedDict):
    rule: str
    name: str
    title: str
    confirmed: bool | None
    said: str


class LogLine(TypedDict):
    line: int
    text: str


class Beside(TypedDict):
    """What the log of the run that worked does not say."""

    parted: int | None
    common: str
    then: Sequence[str]
    bad_loss: int | None
    good_losses: int
    bad_losses: int
    changed: Sequence[Changed]
    warnings: list[LogLine]
    others: list[LogLine]


_Words = TypedDict("_Words", {"not": str | None, "or": str | None})  # these words are Python's


class ExplanationDocument(Head, _Words):
    """Why a run ended."""

    schema: Literal["zdoctor.explanation/1"]
    failed: bool
    worked: bool
    known: bool
    certain: bool
    failure: ShownFailure | None
    while_loading: str | None
    cause: str | None
    do: str | None
    warned: str | None
    ends: str | None
    ran: Ran | None
    source: str | None
    config: str | None
    rules: list[ConfirmedRule]
    other_failures: int
    versions: Mapping[str, str]
    excerpt: str


class ComparedDocument(ExplanationDocument):
    """Why a run ended, beside the log of a run that worked."""

    beside: Beside


def as_data(
    told: Explanation,
    rules: Mapping[str, Told],
    config: str | None = None,
    beside: Comparison | None = None,
    *,
    exit_code: int,
    version: str,
) -> ExplanationDocument | ComparedDocument:
    failure, known = told.failure, told.known
    lead = rules[told.rules[0]] if told.rules else None
    made: ExplanationDocument = {
        "schema": "zdoctor.explanation/1",
        **head(version, exit_code),
        "failed": failure is not None,
        "worked": told.worked,
        "known": known is not None or bool(told.rules),
        "certain": (known is not None or bool(told.rules)) and told.certain,
        "failure": None if failure is None else _failure(failure),
        "while_loading": told.site or None,
        "cause": told.cause if known else lead.cause if lead else None,
        "do": told.do if known else lead.repair if lead else None,
        "or": known.also or None if known else None,
        "not": known.avoid or None if known else None,
        "warned": told.warned.cause if told.warned else None,
        "ends": told.ends.cause if told.ends else None,
        "ran": told.ran,
        "source": known.source or None if known else None,
        "config": config,
        "rules": [shown(ConfirmedRule, rules[id], rule=id) for id in told.rules],
        "other_failures": told.others,
        "versions": told.versions,
        "excerpt": told.excerpt,
    }
    return made if beside is None else {**made, "beside": _comparison(beside)}


def _failure(failure: Failure) -> ShownFailure:
    came_from = [shown(Raised, part) for part in failure.chain[1:]]
    return shown(ShownFailure, failure, line=failure.at, came_from=came_from)


def _comparison(seen: Comparison) -> Beside:
    warnings, others = ([{"line": at, "text": text} for at, text in of] for of in (seen.warnings, seen.others))
    return shown(Beside, seen, warnings=warnings, others=others)
