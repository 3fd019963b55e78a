"""The report as one JSON object, schema zdoctor.report/1. Changes are additive only."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..doctor.model import Finding, Report
from ..doctor.model.printable import UNPRINTABLE
from .checked import Checked

SCHEMA = "zdoctor.report/1"
SCHEMA_OF_ALL = "zdoctor.reports/1"


def render(checked: Sequence[Checked], version: str = "") -> str:
    """One JSON object, one trailing newline: the report or, of several configs, all of them."""
    reports = [as_data(one.report) for one in checked]
    if len(reports) == 1:
        return dumps(reports[0])
    return dumps({"schema": SCHEMA_OF_ALL, "ok": all(report["ok"] for report in reports), "reports": reports})


def dumps(data: Mapping[str, Any], indent: int = 2) -> str:
    """JSON, one trailing newline. What is unprintable, such as bytes that are not UTF-8, comes out escaped."""
    text = json.dumps(data, ensure_ascii=False, indent=indent, default=str) + "\n"
    return UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def as_data(report: Report) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        **picked(report, "ok", "config", "trainer", "machine", "python"),
        "settings": report.settings or None,
        "outputs": list(report.outputs),
        "findings": [_finding(finding) for finding in report.findings],
        "unknown": [picked(outcome, "rule", "reason") for outcome in report.unknown],
        "crashed": [picked(outcome, "rule", "reason") for outcome in report.crashed],
        "passed": list(report.passed),
        "not_applicable": list(report.not_applicable),
        "allowed": [{**_finding(one.finding), "reason": one.reason} for one in report.allowed],
        "baseline": report.baseline
        and {
            **picked(report.baseline, "file", "gone"),
            "problem": report.baseline.problem or None,
            "known": [_finding(finding) for finding in report.known],
        },
        "judged": list(report.judged),
        "not_judged": [picked(one, "what", "reason") for one in report.not_judged],
        "elapsed_ms": round(report.elapsed_ms),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        **picked(finding, "rule", "name", "severity"),
        "message": finding.text(),
        "otherwise": finding.consequence(),
        "where": finding.where and picked(finding.where, "path", "line", "column", "pointer"),
        "evidence": _plain(finding.evidence),
        "fixes": [
            picked(fix, "title", "safety", "training_effect", *(["command"] if fix.command else []))
            for fix in finding.fixes
        ],
    }


def picked(record: object, *names: str) -> dict[str, Any]:
    """Fields of a record by their names, tuples as lists."""
    values = ((name, getattr(record, name)) for name in names)
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values}


def _plain(value: Any) -> Any:
    """Evidence as JSON: mappings and tuples become objects and arrays, infinities become text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if (isinstance(value, float) and value != value) or value in (float("inf"), float("-inf")):
        return str(value)
    return value
