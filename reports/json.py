"""The report as one JSON object, schema zdoctor.report/1. Changes are additive only.

The types below are its shape, and documents.schema.json is made of them; a record of the model stands for an object
of its fields.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, TypeVar, cast

from ..doctor.model import Finding, MicroStep, Outcome, Report, Safety, Severity, TrainingEffect, Unjudged, Where
from ..doctor.model.findings import Baselined
from ..doctor.model.printable import UNPRINTABLE
from .checked import Checked, exit_code


class Head(TypedDict):
    """What every document says of itself. `ok` is true where the exit code is 0."""

    version: str
    ok: bool
    exit_code: int


class ShownFix(TypedDict):
    title: str
    safety: Safety
    training_effect: TrainingEffect


class TypedFix(ShownFix):
    """A repair that is for the user to type."""

    command: str


class ShownFinding(TypedDict):
    rule: str
    name: str
    severity: Severity
    message: str
    otherwise: str
    where: Where | None
    evidence: Mapping[str, Any]
    fixes: list[ShownFix | TypedFix]


class AllowedFinding(ShownFinding):
    """A finding that a comment of the config allows."""

    reason: str


class ShownBaseline(TypedDict):
    """The findings that a baseline knows, and how many of its entries are gone."""

    file: str
    gone: int
    problem: str | None
    known: list[ShownFinding]


class ReportDocument(Head):
    """What a check found."""

    schema: Literal["zdoctor.report/1"]
    config: str
    trainer: str | None
    machine: str | None
    subject: str | None
    python: str
    settings: str | None
    outputs: Sequence[str]
    findings: list[ShownFinding]
    unknown: Sequence[Outcome]
    crashed: Sequence[Outcome]
    passed: Sequence[str]
    not_applicable: Sequence[str]
    allowed: list[AllowedFinding]
    baseline: ShownBaseline | None
    judged: Sequence[str]
    not_judged: Sequence[Unjudged]
    elapsed_ms: int


class ProbeDocument(ReportDocument):
    """What a probe found. `microstep` is null where the deadline ended it."""

    microstep: MicroStep | None


class ReportsDocument(Head):
    """What a check of several configs found."""

    schema: Literal["zdoctor.reports/1"]
    reports: list[ReportDocument]


def render(checked: Sequence[Checked], version: str = "", code: int | None = None) -> str:
    """One JSON object, one trailing newline: the report or, of several configs, all of them.

    `code` is the exit code where configs that were named could not be read.
    """
    reports = [as_data(one.report, version) for one in checked]
    if len(reports) == 1 and code is None:
        return dumps(reports[0])
    return dumps(_of_all(reports, version, exit_code(one.report for one in checked) if code is None else code))


def _of_all(reports: list[ReportDocument], version: str, code: int) -> ReportsDocument:
    return {"schema": "zdoctor.reports/1", **head(version, code), "reports": reports}


Shown = TypeVar("Shown", bound=Mapping[str, object])


def shown(of: type[Shown], record: object, **given: object) -> Shown:
    """A record as a typed dictionary: what is given here, and its fields of the other keys' names."""
    keys = sorted(of.__annotations__, key=lambda key: key != "schema")  # that tells what follows
    return cast(Shown, {key: given[key] if key in given else getattr(record, key) for key in keys})


def head(version: str, exit_code: int) -> Head:
    return {"version": version, "ok": exit_code == 0, "exit_code": exit_code}


def dumps(data: object, indent: int = 2) -> str:
    """JSON, one trailing newline. What is unprintable, such as bytes that are not UTF-8, comes out escaped."""
    text = json.dumps(plain(data), ensure_ascii=False, indent=indent, default=str) + "\n"
    return UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def as_data(report: Report, version: str = "") -> ReportDocument:
    return shown(
        ReportDocument,
        report,
        schema="zdoctor.report/1",
        **head(version, report.exit_code),
        subject=report.subject or None,
        settings=report.settings or None,
        findings=[_finding(finding) for finding in report.findings],
        allowed=[{**_finding(one.finding), "reason": one.reason} for one in report.allowed],
        baseline=None if report.baseline is None else _baseline(report.baseline),
        elapsed_ms=round(report.elapsed_ms),
    )


def _baseline(baseline: Baselined) -> ShownBaseline:
    known = [_finding(finding) for finding in baseline.known]
    return shown(ShownBaseline, baseline, problem=baseline.problem or None, known=known)


def _finding(finding: Finding) -> ShownFinding:
    return shown(
        ShownFinding,
        finding,
        severity=finding.severity or "note",
        message=finding.text(),
        otherwise=finding.consequence(),
        fixes=[shown(TypedFix if fix.command else ShownFix, fix) for fix in finding.fixes],
    )


def plain(value: Any) -> Any:
    """A document as JSON has it: records and mappings become objects, tuples and sets arrays, infinities text."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if hasattr(value, "__match_args__"):
        return {name: plain(getattr(value, name)) for name in value.__match_args__}
    if (isinstance(value, float) and value != value) or value in (float("inf"), float("-inf")):
        return str(value)
    return value
