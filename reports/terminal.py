"""The report as a person reads it. Without colour it is plain text and imports nothing beyond the standard library.

Lines are (style, text) pairs; `render` joins them, with colour through rich.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..doctor.model import SEVERITIES, Finding, Fix, Outcome, Plan, Report
from ..doctor.model.script import SCRIPT

Span = tuple[str, str]
Line = Sequence[Span]

STYLES = {"error": "bold red", "warning": "yellow", "note": "cyan"}
CONTROLS = dict.fromkeys((*range(9), *range(10, 32), *range(127, 160)), "�")
PLURALS = {"error": "errors", "warning": "warnings", "note": "notes"}
EFFECTS = {"none": "", "equivalent": ", same training", "changes-result": ", changes the training result"}


def render(report: Report, *, width: int = 100, color: bool = False) -> str:
    """The whole report, ending with what to type next."""
    return paint(_report(report, min(width, 110)), color, width)


def render_plan(
    plan: Plan, diff: str, *, offers: Mapping[Fix, str] | None = None, width: int = 100, color: bool = False
) -> str:
    """What a fix would do, `diff` being its changes line by line, and what it leaves to the user.

    `offers` are the changes of what is left, where they are known.
    """
    return paint(_plan(plan, diff, offers or {}, min(width, 110)), color, width)


def paint(lines: Iterable[Line], color: bool, width: int = 100) -> str:
    """Lines to text; with `color` as ANSI for a terminal. Control characters of file names never reach it."""
    lines = [[(style, text.translate(CONTROLS)) for style, text in line] for line in lines]
    if not color:
        return "".join("".join(text for _, text in line).rstrip() + "\n" for line in lines)
    from rich.console import Console
    from rich.text import Text

    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=width, highlight=False, legacy_windows=False)
    for line in lines:
        console.print(Text.assemble(*((text, style) for style, text in line)), soft_wrap=True)
    return out.getvalue()


def _report(report: Report, width: int) -> Iterator[Line]:
    head = f"zdoctor {report.command} {report.config}{_deep(report)}"
    who = [report.trainer or "trainer not recognised"]
    if report.machine:
        who.append(f"machine: {report.machine}")
    yield [("bold", head), ("dim", f"   {' · '.join(who)}")]
    for output in report.outputs:
        yield [("dim", f"the run is written to {output}")]
    yield []
    for finding in report.findings:
        yield from _finding(finding, width)
        yield []
    yield from _outcomes("not known", report.unknown, width)
    yield from _outcomes("crashed (our bug, please report)", report.crashed, width)
    yield _summary(report)
    command, about = _next(report)
    if command:
        yield [("bold", "next: "), ("", command), ("dim", f"   {about}" if about else "")]


def _deep(report: Report) -> str:
    return " --deep" if report.deep else ""


def _finding(finding: Finding, width: int) -> Iterator[Line]:
    severity = finding.severity or "note"
    label = f"{severity:<8}"
    where = _place(finding)
    yield [(STYLES[severity], label), ("bold", f"{finding.rule} {finding.name}"), ("dim", f"   {where}")]
    yield from wrap(finding.text(), width, "  ")
    if finding.otherwise:
        yield from wrap(finding.consequence(), width, "  otherwise: ", style="dim")
    for fix in finding.fixes[:3]:
        yield from wrap(f"{fix.title}{_how(fix)}", width, "  fix: ", style="green")
        if fix.command:
            yield [("green", f"       $ {fix.command}")]
    if len(finding.fixes) > 3:
        yield [("dim", f"       … and {len(finding.fixes) - 3} more choices")]


def _how(fix: Fix) -> str:
    if not fix.steps:
        return ""
    safety = {"safe": "safe", "ask": "your decision", "show": "by hand"}[fix.safety]
    return f"  [{safety}{EFFECTS[fix.training_effect]}]"


def _place(finding: Finding) -> str:
    where = finding.where
    if where is None:
        return ""
    text = where.path
    if where.line is not None:
        text += f":{where.line}"
        if where.column is not None:
            text += f":{where.column}"
    if where.pointer:
        text += f"  {where.pointer.rsplit('/', 1)[-1]}"
    return text


def _outcomes(title: str, outcomes: Sequence[Outcome], width: int) -> Iterator[Line]:
    """Outcomes grouped by reason, so that one missing fact is said once."""
    by_reason: dict[str, list[str]] = {}
    for outcome in outcomes:
        by_reason.setdefault(outcome.reason, []).append(outcome.rule)
    for reason, rules in by_reason.items():
        yield from wrap(f"{' '.join(rules)}: {reason}", width, f"{title}: ", style="magenta")
    if by_reason:
        yield []


def _summary(report: Report) -> Line:
    counts = {severity: sum(f.severity == severity for f in report.findings) for severity in SEVERITIES}
    parts = [f"{n} {severity if n == 1 else PLURALS[severity]}" for severity, n in counts.items() if n]
    text = ", ".join(parts) or "nothing found"
    rest = f" · {len(report.passed)} rules passed"
    if report.unknown:
        rest += f", {len(report.unknown)} not known"
    if report.crashed:
        rest += f", {len(report.crashed)} crashed"
    style = "bold red" if report.errors else "bold yellow" if not report.ok or counts["warning"] else "bold green"
    return [(style, text), ("dim", f"{rest} · {report.elapsed_ms:.0f} ms")]


def _next(report: Report) -> tuple[str, str]:
    """What to type next, and what it does."""
    ready = {fix for f in report.findings for fix in f.fixes if fix.safety == "safe" and fix.steps}
    if any(fix.training_effect == "none" for fix in ready):
        return f"zdoctor fix {report.config}{_deep(report)}", "shows the plan; --apply carries it out"
    if ready and report.errors:
        return f"zdoctor fix {report.config}{_deep(report)} --allow result", "shows the repairs that change training"
    if report.errors:
        return f"zdoctor explain {report.errors[0].rule}", ""
    if report.trainer == SCRIPT and report.command == "check" and not report.crashed:
        return f"zdoctor probe {report.config}:build_model", "runs one step and says what of it is not trained"
    return (f"zdoctor train {report.config}", "") if report.trainable and not report.crashed else ("", "")


def _diff(text: str, lead: str = "") -> Iterator[Line]:
    for line in text.splitlines():
        style = "green" if line.startswith("+") else "red" if line.startswith("-") else "dim"
        yield [(style, f"{lead}{line}")]


def _plan(plan: Plan, diff: str, offers: Mapping[Fix, str], width: int) -> Iterator[Line]:
    if not plan.fixes:
        yield [("bold", "Nothing to repair that zdoctor would do by itself.")]
    for fix in plan.fixes:
        yield from wrap(f"{fix.rule}  {fix.title}{_how(fix)}", width, "  ", style="green")
    if diff:
        yield []
        yield from _diff(diff)
    if plan.shown:
        yield []
        yield [("bold", "Left to you:")]
        for fix in plan.shown:
            yield from wrap(f"{fix.rule}  {fix.title}{_how(fix)}", width, "  ")
            yield from _diff(offers.get(fix, ""), "      ")
            if fix.command:
                yield [("", f"      $ {fix.command}")]


def wrap(text: str, width: int, lead: str, style: str = "") -> Iterator[Line]:
    blank = " " * len(lead)
    pieces = [
        piece
        for paragraph in text.splitlines() or [""]
        for piece in (
            textwrap.wrap(paragraph, max(30, width - len(lead)), break_long_words=False, break_on_hyphens=False)
            or [""]
        )
    ]
    for number, piece in enumerate(pieces):
        yield [("dim" if lead.strip() else "", lead if number == 0 else blank), (style, piece)]
