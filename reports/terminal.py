"""The report as a person reads it. Without colour it is plain text and imports nothing beyond the standard library.

Lines are (style, text) pairs; `render` joins them, with colour through rich.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..doctor.model import Finding, Fix, Outcome, Plan, Report
from ..doctor.model.printable import printable
from ..doctor.model.record import dataclass
from . import words


@dataclass(frozen=True)
class Wrapped:
    """Text that is broken into lines as wide as the page, each behind `lead` or blanks in its place."""

    text: str
    lead: str
    style: str = ""


Spans = Sequence[tuple[str, str]]
Line = Spans | Wrapped

STYLES = {"error": "bold red", "warning": "yellow", "note": "cyan"}
VERDICTS = {"error": "red", "unknown": "yellow", "warning": "yellow", "note": "green", "good": "green"}


def paint(lines: Iterable[Line], color: bool = False, width: int = 100) -> str:
    """Lines to text; with `color` as ANSI for a terminal. Control characters of file names never reach it."""
    spans = (spans for line in lines for spans in _broken(line, min(width, 110)))
    cleaned = [[(style, printable(text.replace("\n", "\0"))) for style, text in line] for line in spans]
    if not color:
        return "".join("".join(text for _, text in line).rstrip() + "\n" for line in cleaned)
    from rich.console import Console
    from rich.text import Text

    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=width, highlight=False, legacy_windows=False)
    for line in cleaned:
        console.print(Text.assemble(*((text, style) for style, text in line)), soft_wrap=True)
    return out.getvalue()


def _broken(line: Line, width: int) -> Iterator[Spans]:
    if not isinstance(line, Wrapped):
        yield line
        return
    room, lead = max(30, width - len(line.lead)), line.lead
    for paragraph in line.text.splitlines() or [""]:
        for piece in textwrap.wrap(paragraph, room, break_long_words=False, break_on_hyphens=False) or [""]:
            yield [("dim" if line.lead.strip() else "", lead), (line.style, piece)]
            lead = " " * len(line.lead)


def lines(report: Report, following: tuple[str, str] | None = None) -> Iterator[Line]:
    """The whole report, ending with what to type next, which is `following` where that is given."""
    yield [("bold", words.heading(report)), ("dim", f"   {' · '.join(words.who(report))}")]
    for output in report.outputs:
        yield [("dim", f"the run is written to {output}")]
    yield []
    for finding in report.findings:
        yield from _finding(finding)
        yield []
    yield from _outcomes("not known", report.unknown)
    yield from _outcomes(words.CRASHED, report.crashed)
    yield from _summary(report)
    command, about = following or words.next_step(report)
    if command:
        yield [("bold", "next: "), ("", command), ("dim", f"   {about}" if about else "")]
    if told := words.own_trainer(report):
        yield [("", told)]


def _finding(finding: Finding) -> Iterator[Line]:
    severity = finding.severity or "note"
    label = f"{severity:<8}"
    where = _place(finding)
    yield [(STYLES[severity], label), ("bold", f"{finding.rule} {finding.name}"), ("dim", f"   {where}")]
    yield Wrapped(finding.text(), "  ")
    if finding.otherwise:
        yield Wrapped(finding.consequence(), "  otherwise: ", "dim")
    for fix in finding.fixes[:3]:
        yield Wrapped(f"{fix.title}{_how(fix)}", "  fix: ", "green")
        if fix.command:
            yield [("green", f"       $ {fix.command}")]
    if len(finding.fixes) > 3:
        yield [("dim", f"       … and {len(finding.fixes) - 3} more choices")]


def _how(fix: Fix) -> str:
    said = words.how(fix)
    return f"  [{said}]" if said else ""


def _place(finding: Finding) -> str:
    return f"{words.place(finding)}  {words.key(finding)}".rstrip()


def _outcomes(title: str, outcomes: Sequence[Outcome]) -> Iterator[Line]:
    for reason, rules in words.by_reason(outcomes).items():
        yield Wrapped(f"{words.named(reason, rules)}: {reason}", f"{title}: ", "magenta")
    if outcomes:
        yield []


def _summary(report: Report) -> Iterator[Line]:
    verdict, style = words.verdict(report), f"bold {VERDICTS[words.tone(report)]}"
    rest = f"{words.outcomes(report)} · {report.elapsed_ms:.0f} ms"
    if not report.not_judged:
        yield [(style, verdict), ("dim", f" · {rest}")]
        return
    yield Wrapped(verdict, "", style)
    yield [("dim", rest)]


def _diff(text: str, lead: str = "") -> Iterator[Line]:
    for line in text.splitlines():
        style = "green" if line.startswith("+") else "red" if line.startswith("-") else "dim"
        yield [(style, f"{lead}{line}")]


def plan_lines(
    plan: Plan, diff: str, *, offers: Mapping[Fix, str] = {}, decisions: Mapping[Fix, str] = {}
) -> Iterator[Line]:
    """What a fix would do, `diff` being its changes line by line, and what it leaves to the user.

    `offers` are the changes of what is left, where they are known; `decisions` what to type for it.
    """
    if not plan.fixes:
        yield [("bold", "Nothing to repair that zdoctor would do by itself.")]
    for fix in plan.fixes:
        yield Wrapped(f"{fix.rule}  {fix.title}{_how(fix)}", "  ", "green")
    if diff:
        yield []
        yield from _diff(diff)
    if plan.shown:
        yield []
        yield [("bold", "Left to you:")]
        typed = [fix.command or decisions.get(fix, "") for fix in plan.shown]
        for fix, command, following in zip(plan.shown, typed, [*typed[1:], ""], strict=True):
            yield Wrapped(f"{fix.rule}  {fix.title}{_how(fix)}", "  ")
            yield from _diff(offers.get(fix, ""), "      ")
            if command and command != following:
                yield [("", f"      $ {command}")]
