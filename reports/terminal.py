"""The report as a person reads it: causes first, and at its end, on one screen, every error and what to type next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import PurePath

from ..doctor.model import Config, Finding, Outcome, Report, Where
from ..doctor.model.columns import cells, padded
from ..doctor.model.said import AsIs, filled, joined, listed, said
from . import what_next, words
from .checked import Checked
from .excerpt import excerpt
from .painting import PAGE, Line, Screen, Spans, Typed, Wrapped, rows, shortened, spoken

STYLES = {"error": "bold red", "warning": "yellow", "note": "cyan"}
VERDICTS = {"error": "red", "unknown": "yellow", "warning": "yellow", "note": "green", "good": "green"}
MOST_ALIKE = 5  # findings of one kind that are told one by one
MOST_FIXES = 3


def of_all(checked: Sequence[Checked], screen: Screen, *, verbose: bool = False) -> Iterator[Line]:
    """The report of one config; of several what is wrong with each, and a line for each at the end."""
    if len(checked) == 1:
        yield from lines(checked[0].report, screen, config=checked[0].config, verbose=verbose)
        return
    for one in checked:
        if verbose or any(finding.severity != "note" for finding in one.report.findings):
            yield from _body(one.report, screen, one.config, verbose)
    ordered = sorted((one.report for one in checked), key=lambda report: bool(report.failing))
    told = ordered if verbose else ordered[-max(screen.height - 8, 1) :]
    if left := len(ordered) - len(told):
        yield [("dim", f"and {left} more without an error" if not ordered[left - 1].failing else f"and {left} more")]
    for report in told:
        verdict, style = words.verdict(report), VERDICTS[words.tone(report)]
        yield Wrapped(f"{report.config}: {said(verdict)}", "", style)
    failed = [report for report in ordered if report.failing]
    for line in words.of_baseline(ordered):
        yield Wrapped(line, "", "dim")
    yield []
    strict = " or warnings" * any(report.strict for report in failed)
    count = f"{len(failed)} of {len(checked)} configs have errors{strict}"
    yield [("bold red", count)] if failed else [("bold", f"no error found in {len(checked)} configs")]
    for command, about in what_next.next_steps(failed[0]) if failed else ():
        yield Typed(command, "next: ", about)


def lines(
    report: Report,
    screen: Screen = PAGE,
    *,
    config: Config | None = None,
    repaired: bool = False,
    verbose: bool = False,
) -> Iterator[Line]:
    """The whole report, ending with what to type next (`repaired`: after a repair).

    `config` is what was read, for the lines that findings are about. `verbose` tells everything in full; without it
    notes are counted, findings of one kind are told together, and what is not known stands by what it is about.
    """
    body = list(_body(report, screen, config, verbose))
    end = list(_end(report, repaired, verbose))
    yield from body
    if report.errors and rows(body, screen) + rows(end, screen) >= screen.height:
        yield from _errors(report, screen, screen.height - rows(end, screen) - 2)
    yield from end


def _body(report: Report, screen: Screen, config: Config | None, verbose: bool) -> Iterator[Line]:
    yield from _headed([("bold", AsIs(words.heading(report)))], joined(" · ", words.who(report)), screen)
    for output in report.outputs:
        yield Wrapped(f"the run is written to {output}", "", "dim")
    for line in words.about(report):
        yield Wrapped(line, "", "dim")
    yield []
    shown = [finding for finding in report.findings if verbose or finding.severity != "note"]
    before: Where | None = None
    for alike in [[finding] for finding in shown] if verbose else words.alike(shown):
        yield from _finding(alike[0], screen, config if alike[0].where != before else None)
        before = alike[0].where
        for last, finding in pairwise(alike[:MOST_ALIKE]):
            yield from _another(last, finding, screen)
        if left := alike[MOST_ALIKE:]:
            yield Wrapped(f"and {len(left)} more of {left[0].rule}: {words.lines_of(left)}", "  … ", "dim")
        yield []
    if verbose or not report.not_judged:
        yield from _outcomes("not known", report.unknown)
    yield from _outcomes(words.CRASHED, report.crashed)
    if verbose:
        for one in report.allowed:
            yield Wrapped(f"{one.finding.rule} {words.line_of(one.finding)}{one.reason}", "allowed: ", "dim")
        yield from [[]] * bool(report.allowed)
    if reasons := words.unjudged(report):
        for reason, areas in reasons.items():
            yield Wrapped(joined(": ", (joined(", ", areas), reason)), "not judged: ", "magenta")
        yield []


def _end(report: Report, repaired: bool, verbose: bool) -> Iterator[Line]:
    notes = [finding for finding in report.findings if finding.severity == "note"]
    yield Wrapped(words.verdict(report), "", f"bold {VERDICTS[words.tone(report)]}")
    yield Wrapped(joined(" · ", (words.outcomes(report), AsIs(f"{report.elapsed_ms:.0f} ms"))), "", "dim")
    what = [f"the {words.counted('note', len(notes))}"] * bool(notes) + ["what is not known"] * bool(report.unknown)
    what += ["what is allowed"] * bool(report.allowed)
    if what and not verbose and report.command == "check":
        yield Typed(report.typed("check", "-v"), "more: ", filled("tells {what}", {"what": listed(what)}), "dim")
    for number, (command, about) in enumerate(what_next.next_steps(report, repaired)):
        yield Typed(command, "or:   " if number else "next: ", about)
    if told := what_next.own_trainer(report):
        yield Wrapped(told, "")


def _finding(finding: Finding, screen: Screen, config: Config | None) -> Iterator[Line]:
    severity = finding.severity or "note"
    severities = [said(one) for one in STYLES]
    column = padded(said(severity), max(map(cells, severities)) + 1)
    name = [(STYLES[severity], AsIs(column)), ("bold", AsIs(f"{finding.rule} {finding.name}"))]
    yield from _headed(name, AsIs(words.placed(finding)), screen, "  ", _linked(finding, screen))
    if config is not None and "\n" not in finding.text():  # else it shows its place itself
        yield from excerpt(config, finding.where, screen.width)
    yield Wrapped(finding.text(), "  ")
    yield from _rest(finding)


def _another(before: Finding, finding: Finding, screen: Screen) -> Iterator[Line]:
    """One more finding of the kind of `before`: what is the same for both is not said again."""
    if finding.where != before.where:
        yield [("", "  "), (_linked(finding, screen), AsIs(words.placed(finding)))]
    yield Wrapped(finding.text(), "  ")
    yield from _rest(finding, before)


def _rest(finding: Finding, before: Finding | None = None) -> Iterator[Line]:
    if finding.otherwise and (before is None or finding.consequence() != before.consequence()):
        yield Wrapped(finding.consequence(), "  otherwise: ", "dim")
    known = set() if before is None else {(fix.title, fix.command) for fix in before.fixes}
    fixes = [fix for fix in finding.fixes if (fix.title, fix.command) not in known]
    commands = {fix.command for fix in before.fixes} if before is not None else set()
    for fix in fixes[:MOST_FIXES]:
        yield Wrapped(words.titled(fix), "  fix: ", "green")
        if fix.command and fix.command not in commands:
            yield Typed(fix.command, "       $ ", style="green")
    if len(fixes) > MOST_FIXES:
        yield [("dim", f"       … and {len(fixes) - MOST_FIXES} more choices")]


def _errors(report: Report, screen: Screen, room: int) -> Iterator[Spans]:
    """Every error in a line of its own or, where that takes more lines than there are, counted by its rule."""
    told = [f"{one.rule} {said(words.line_of(one))}{said(one.text())}" for one in report.errors]
    if len(told) > room:
        ids = dict.fromkeys(finding.rule for finding in report.errors)
        kinds = [[finding for finding in report.errors if finding.rule == id] for id in ids]
        told = [f"{of[0].rule} ×{len(of)} {of[0].name}: {said(words.lines_of(of))}" for of in kinds]
        if left := kinds[max(room - 1, 0) :] if len(kinds) > room else []:
            told[-len(left) :] = [said(f"and {sum(map(len, left))} more, of {len(left)} rules")]
    for text in told:
        lead = AsIs(f"{said('error')} ")
        yield [("red", lead), ("", AsIs(shortened(text, screen.width - cells(lead))))]
    yield []


def _outcomes(title: str, outcomes: Sequence[Outcome]) -> Iterator[Line]:
    for reason, rules in words.by_reason(outcomes).items():
        yield Wrapped(f"{words.named(reason, rules)}: {reason}", f"{title}: ", "magenta")
    if outcomes:
        yield []


def _linked(finding: Finding, screen: Screen) -> str:
    """The style of a finding's place, which leads to its file."""
    if finding.where is None or not screen.folder:
        return "dim"
    return f"dim link {words.uri(str(PurePath(screen.folder, finding.where.path)))}"


def _headed(head: Spans, about: str, screen: Screen, lead: str = "", style: str = "dim") -> Iterator[Line]:
    """A head and what is said of it, in one line where there is room, else below each other."""
    if cells("".join(spoken(text) for _, text in head) + about) + 3 <= screen.width:
        yield [*head, ("", "   "), (style, about)]
    else:
        yield head
        yield Wrapped(about, lead, "dim")
