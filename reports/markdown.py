"""The report as Markdown, for an issue or a chat. Paths, keys and marks are code spans; the rest is plain words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..doctor.model import Finding, Fix, Report
from ..doctor.model.said import joined, said
from . import what_next, words
from .checked import Checked
from .painting import WIDE

# Such a word means nothing to any dialect of Markdown, nor to what turns names and numbers into links.
PLAIN = re.compile(r"(?:[^\W_]+(?:[.,;'’%+=-][^\W_]+)*%?|[—–·…])?")
LINKED = re.compile(r"www\.|GH-\d", re.I)
# What is between blanks and characters of East Asia, which mean nothing to Markdown, either.
WORDS = re.compile(f"[^\\s{WIDE}]+")
BEFORE, AFTER = "(\"'", ".,:;!?)\"'…"


def render(checked: Sequence[Checked], version: str = "") -> str:
    """The whole reports, each ending with what to type next."""
    return "\n\n".join(part for one in checked for part in _report(one.report, version)) + "\n"


def _report(report: Report, version: str) -> Iterator[str]:
    yield f"## {code(words.heading(report))}: {prose(words.verdict(report))}"
    yield prose(joined(" · ", [f"zdoctor {version}".strip(), *words.who(report), words.outcomes(report)]))
    for output in report.outputs:
        yield f"{said('The run is written to')} {code(output)}"
    yield from map(prose, words.about(report))
    if report.cut_short:
        yield f"**{said('Cut short:')}** {prose(report.cut_short)}"
    for finding in report.findings:
        yield from _finding(finding)
    if open := words.unjudged(report):
        yield f"### {said('Not judged')}"
        yield "\n".join(f"- **{said(', '.join(areas))}**: {prose(reason)}" for reason, areas in open.items())
    for title, outcomes in (("Not known", report.unknown), (words.CRASHED.capitalize(), report.crashed)):
        if outcomes:
            yield f"### {said(title)}"
            grouped = words.by_reason(outcomes).items()
            yield "\n".join(f"- **{said(words.named(reason, rules))}**: {prose(reason)}" for reason, rules in grouped)
    for number, (command, about) in enumerate(what_next.next_steps(report)):
        yield said("or") if number else f"### {said('Next')}"
        yield fence(command, "sh")
        if about:
            yield prose(about)
    if told := what_next.own_trainer(report):
        yield prose(told)


def _finding(finding: Finding) -> Iterator[str]:
    yield f"### {said(finding.severity or 'note')}: {finding.rule} {finding.name}"
    if finding.where is not None:
        yield " ".join(code(part) for part in (words.place(finding), words.key(finding)) if part)
    text = words.clean(said(finding.text())).strip()
    yield fence(text) if "\n" in text else prose(text)
    if finding.otherwise:
        yield f"*{said('Otherwise:')}* {prose(finding.consequence())}"
    for fix in finding.fixes:
        yield from _fix(fix)


def _fix(fix: Fix) -> Iterator[str]:
    how = words.how(fix)
    yield f"**{said('Fix')}**{f' ({said(how)})' if how else ''}: {prose(fix.title)}"
    if fix.command:
        yield fence(fix.command, "sh")


def prose(text: str) -> str:
    """One line of text that reads as it is written, whatever is in it."""
    line = " ".join(words.clean(said(text)).split())
    return WORDS.sub(lambda word: _word(word[0], first=word.start() == 0), line)


def _word(word: str, first: bool) -> str:
    inner = word.lstrip(BEFORE)
    core = inner.rstrip(AFTER)
    begins_list = first and core.isdigit() and core != word
    if PLAIN.fullmatch(core) and not LINKED.match(core) and not begins_list:
        return word
    return f"{word[: len(word) - len(inner)]}{code(core)}{inner[len(core) :]}"


def code(text: str) -> str:
    """A code span, closed by more backticks in a row than the text has."""
    text = " ".join(words.clean(text).split())
    marks = "`" * (_longest(text) + 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{marks}{space}{text}{space}{marks}" if text else ""


def fence(text: str, language: str = "text") -> str:
    marks = "`" * max(3, _longest(text) + 1)
    return f"{marks}{language}\n{words.clean(text).strip()}\n{marks}"


def _longest(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
