"""The report as SARIF 2.1.0 (OASIS), for code scanning and editors.

Findings are results. Rules that are not known or crashed are notifications of the invocation, not results of the kind
"open": GitHub makes an alert of every result, whatever its kind, and refuses a file with a result without a location.
A repair is among the fixes where it replaces text of the config; the others are named in the message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..doctor.model import Config, Finding, Fix, Outcome, ReplaceText, Report
from ..doctor.model.known import fingerprint
from ..doctor.rules import Rule
from . import words
from .checked import Checked
from .json import dumps

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
NOT_KNOWN, NOT_JUDGED, CRASHED, CUT_SHORT = "not-known", "not-judged", "crashed", "cut-short"
NOTIFICATIONS = {
    NOT_KNOWN: "What the rule looks at could not be established, so it neither found anything nor passed.",
    NOT_JUDGED: "This part of the run was not looked at, or not as a whole.",
    CRASHED: "The rule ended with an exception, which is a bug of zdoctor.",
    CUT_SHORT: "A deadline ended the check.",
}
Data = dict[str, Any]


def render(checked: Sequence[Checked], version: str = "", addresses: Mapping[str, str] = {}) -> str:
    """One JSON object with a run for each config, one trailing newline.

    Of `addresses`, by what each is called, "homepage" is zdoctor's own and "rules" that of docs/rules.md.
    """
    runs = [_run(one, version, addresses) for one in checked]
    return dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": runs})


def _run(one: Checked, version: str, addresses: Mapping[str, str]) -> Data:
    report = one.report
    found = (*report.known, *report.findings, *(one.finding for one in report.allowed))
    named = {*(finding.rule for finding in found), *(o.rule for o in (*report.unknown, *report.crashed))}
    page = addresses.get("rules", "")
    described = [_rule(rule, page) for rule in one.rules if rule.id in named]
    index = {rule["id"]: number for number, rule in enumerate(described)}
    driver = {
        "name": "zdoctor",
        **({"version": version, "semanticVersion": version} if version else {}),
        **({"informationUri": addresses["homepage"]} if "homepage" in addresses else {}),
        "rules": described,
        "notifications": [_kind(id, _message(text)) for id, text in NOTIFICATIONS.items()],
    }
    return {
        "tool": {"driver": driver},
        # uploads of several configs in one workflow must differ in their category, which ends at the last slash
        "automationDetails": {"id": words.clean(f"zdoctor/{report.config}/")},
        "invocations": [_invocation(report, index)],
        "columnKind": "unicodeCodePoints",
        "results": _results(report, index, one.config),
        "properties": {
            "trainer": report.trainer,
            "machine": report.machine,
            "settings": report.settings or None,
            "baseline": ", ".join(words.of_baseline([report])) or None,
            "passed": list(report.passed),
        },
    }


def _rule(rule: Rule, page: str) -> Data:
    told = dict(words.sections(rule))
    markdown = "\n\n".join([_escaped(rule.title), *(f"**{name}.** {_escaped(text)}" for name, text in told.items())])
    return {
        "id": rule.id,
        "name": rule.name,
        "shortDescription": _message(rule.title or rule.name),
        "fullDescription": _message(" ".join(told.get("What", rule.title or rule.name).split())),
        "help": {"text": words.clean(rule.doc or rule.name), "markdown": words.clean(markdown or rule.name)},
        **({"helpUri": f"{page}#{anchor(rule)}"} if page and not rule.plugin else {}),
        "defaultConfiguration": {"level": rule.severity},
    }


def _kind(id: str, told: Data) -> Data:
    return {"id": id, "shortDescription": told, "fullDescription": told, "help": told}  # GitHub asks for all three


def anchor(rule: Rule) -> str:
    """Where docs/rules.md tells of a rule, as GitHub names its heading."""
    return f"{rule.id}-{rule.name}-{rule.severity}".lower()


def _escaped(text: str) -> str:
    """Text of a docstring as Markdown: a "<" outside its code spans would begin a tag."""
    return "".join(part if part.startswith("`") else part.replace("<", "\\<") for part in re.split("(`[^`]*`)", text))


def _invocation(report: Report, index: dict[str, int]) -> Data:
    crashed = [_notification(CRASHED, "error", outcome, index) for outcome in report.crashed]
    unknown = [_notification(NOT_KNOWN, "note", outcome, index) for outcome in report.unknown]
    level = "error" if report.missed else "warning"
    open = [_told(NOT_JUDGED, level, f"not judged: {one.what}: {one.reason}") for one in report.not_judged]
    cut = [_told(CUT_SHORT, "error", report.cut_short)] if report.cut_short else []
    return {
        "executionSuccessful": not crashed and not cut and not report.missed,
        "exitCode": report.exit_code,
        "toolExecutionNotifications": [*cut, *open, *crashed, *unknown],
    }


def _told(kind: str, level: str, text: str) -> Data:
    return {"descriptor": {"id": kind}, "level": level, "message": _message(text)}


def _notification(kind: str, level: str, outcome: Outcome, index: dict[str, int]) -> Data:
    rule = {"id": outcome.rule, **({"index": index[outcome.rule]} if outcome.rule in index else {})}
    return {**_told(kind, level, outcome.reason), "associatedRule": rule}


def _results(report: Report, index: dict[str, int], config: Config | None) -> list[Data]:
    results: list[Data] = []
    seen: dict[str, int] = {}
    known = {id(finding) for finding in report.known}
    reasons = {id(one.finding): one.reason for one in report.allowed}
    # as a baseline counts them: of several that say the same, those that it knows come first
    for finding in (*report.known, *report.findings, *(one.finding for one in report.allowed)):
        same = fingerprint(finding)
        seen[same] = seen.get(same, 0) + 1
        result: Data = {
            "ruleId": finding.rule,
            **({"ruleIndex": index[finding.rule]} if finding.rule in index else {}),
            "level": finding.severity or "note",
            "message": _message(words.told(finding)),
            "locations": [_location(finding, report.config)],
            "partialFingerprints": {"ruleAndKey/v1": f"{same}:{seen[same]}"},
        }
        if report.baseline is not None and not report.baseline.problem:
            result["baselineState"] = "unchanged" if id(finding) in known else "new"
        if id(finding) in reasons:
            justification = words.clean(reasons[id(finding)])
            result["suppressions"] = [{"kind": "inSource", "justification": justification}]
        fixes = [fix for fix in (_fix(fix, config) for fix in finding.fixes) if fix]
        results.append({**result, "fixes": fixes} if fixes else result)
    return results


def _location(finding: Finding, config: str) -> Data:
    where = finding.where
    physical: Data = {"artifactLocation": {"uri": words.uri(config if where is None else where.path)}}
    if where is not None and where.line is not None:
        column = {"startColumn": where.column} if where.column is not None else {}
        physical["region"] = {"startLine": where.line, **column}
    location: Data = {"physicalLocation": physical}
    if where is not None and where.pointer:
        name, pointer = words.clean(words.key(finding)), words.clean(where.pointer)
        location["logicalLocations"] = [{"name": name, "fullyQualifiedName": pointer}]
    return location


def _fix(fix: Fix, config: Config | None) -> Data | None:
    """A repair as replaced text; None for one that does something else, or whose text cannot be said so."""
    changes: dict[str, list[Data]] = {}
    for step in fix.steps:
        file = None if config is None or not isinstance(step, ReplaceText) else config.file(step.path)
        if file is None or not isinstance(step, ReplaceText) or file.path != step.path:
            return None
        known = file.text[step.start : step.end] == step.old and words.clean(step.new) == step.new
        if not known or "\ufeff" in step.old:  # regions take no notice of a byte-order mark
            return None
        (line, column), (last, end) = _position(file.text, step.start), _position(file.text, step.end)
        region = {"startLine": line, "startColumn": column, "endLine": last, "endColumn": end}
        changes.setdefault(step.path, []).append({"deletedRegion": region, "insertedContent": {"text": step.new}})
    if not changes:
        return None
    return {
        "description": _message(words.titled(fix)),
        "artifactChanges": [
            {"artifactLocation": {"uri": words.uri(path)}, "replacements": replacements}
            for path, replacements in changes.items()
        ],
    }


def _position(text: str, offset: int) -> tuple[int, int]:
    """Line and column from 1, a byte-order mark not counted."""
    line = text.count("\n", 0, offset)
    column = offset - (text.rfind("\n", 0, offset) + 1)
    return line + 1, column + 1 - (line == 0 and offset > 0 and text.startswith("\ufeff"))


def _message(text: str) -> Data:
    """A message; "[…](…)" in it would be a link."""
    return {"text": words.clean(text).replace("](", "] (")}
