"""The report as GitHub's workflow commands: annotations at the lines of the files, and one line for the log.

The runner undoes the escapes below (actions/runner, ActionCommand.cs). It shows ten annotations of each level in a
step, so what is not known is grouped by its reason. Paths count from the folder where zdoctor ran.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from ..doctor.model import Finding, Report
from . import words
from .checked import Checked

LEVELS = {"error": "error", "warning": "warning", "note": "notice"}


def render(checked: Sequence[Checked], version: str = "") -> str:
    """One command a line; the last line of each config is its summary."""
    return words.clean("".join(f"{line}\n" for one in checked for line in _report(one.report)))


def _report(report: Report) -> Iterator[str]:
    failing = {id(finding) for finding in report.failing}
    for finding in report.findings:
        yield _finding(
            finding, report.config, "error" if id(finding) in failing else LEVELS[finding.severity or "note"]
        )
    if report.cut_short:
        yield command("error", report.cut_short, file=report.config, title="cut short")
    for reason, rules in words.by_reason(report.crashed).items():
        yield command("error", reason, file=report.config, title=f"{' '.join(rules)} {words.CRASHED}")
    for reason, rules in words.by_reason(report.unknown).items():
        yield command("notice", reason, file=report.config, title=f"{words.named(reason, rules)} not known")
    if report.not_judged:
        title = f"not judged: {', '.join(one.what for one in report.not_judged)}"
        severity = "error" if report.missed else "warning"
        yield command(severity, words.with_reasons(report), file=report.config, title=title)
    settings = f" · settings: {report.settings}" if report.settings else ""
    told = f"{words.with_reasons(report)} · {words.outcomes(report)} · exit code {report.exit_code}{settings}"
    yield f"zdoctor {report.command}: {told}"


def _finding(finding: Finding, config: str, level: str) -> str:
    where = finding.where
    return command(
        level,
        words.told(finding),
        file=where.path if where is not None else config,
        line=where.line if where is not None else None,
        col=where.column if where is not None else None,
        title=f"{finding.rule} {finding.name}",
    )


def command(
    name: str, message: str, *, file: str, title: str, line: int | None = None, col: int | None = None
) -> str:
    """`::name file=…,line=…,col=…,title=…::message`, escaped."""
    properties = {"file": PurePath(file).as_posix(), "line": line, "col": col, "title": title}
    said = ",".join(f"{key}={_property(str(value))}" for key, value in properties.items() if value is not None)
    return f"::{name} {said}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
