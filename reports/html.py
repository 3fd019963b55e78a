"""The report as one page that needs nothing else: no script, no asset, light or dark, to be read or printed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape

from ..doctor.model import Finding, Fix, Outcome, Report
from ..doctor.rules import Rule
from . import words
from .checked import Checked

STYLE = """
:root { color-scheme: light dark; --ground: #fbfbfa; --card: #fff; --text: #1d1d1b; --soft: #62615d; --line: #dddbd5;
  --code: #f1f0ec; --error: #b3261e; --warning: #8a5a00; --note: #22628f; --unknown: #7a3e9d; --good: #2f6b34; }
@media screen and (prefers-color-scheme: dark) { :root { --ground: #191918; --card: #212120; --text: #ecebe7;
  --soft: #a5a39d; --line: #3a3936; --code: #2c2b29; --error: #ff8a80; --warning: #e8b04a; --note: #7cbdec;
  --unknown: #cf9be8; --good: #84c98a; } }
* { box-sizing: border-box; }
body { background: var(--ground); color: var(--text); font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto;
  max-width: 900px; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; margin: 0; } h2 { font-size: 1.05rem; margin: 2rem 0 .6rem; }
article h2 { font-size: 1rem; margin: 0; } p { margin: .4rem 0; }
code, pre { font: .9em/1.45 ui-monospace, Consolas, monospace; background: var(--code); border-radius: 3px; }
code { padding: .05em .3em; } pre { padding: .5rem .7rem; margin: .3rem 0; white-space: pre-wrap; }
.soft { color: var(--soft); } .said { white-space: pre-wrap; } .where { font-size: .9em; }
.verdict { font-size: 1.1rem; font-weight: 600; margin: .6rem 0; }
article { background: var(--card); border: 1px solid var(--line); border-left: 4px solid var(--kind);
  border-radius: 4px; padding: .7rem 1rem; margin: .8rem 0; }
.error, .crashed { --kind: var(--error); } .warning { --kind: var(--warning); } .note { --kind: var(--note); }
.unknown { --kind: var(--unknown); } .good { --kind: var(--good); }
.badge, .verdict { color: var(--kind); } .badge { font-size: .8em; text-transform: uppercase; letter-spacing: .05em; }
ul { padding-left: 1.2rem; margin: .4rem 0; } li { margin: .3rem 0; }
details { margin-top: .5rem; } summary { cursor: pointer; color: var(--soft); }
@media print { body { margin: 0; max-width: none; font-size: 11pt; } article, li { break-inside: avoid; }
  summary { display: none; } }
"""


def render(checked: Sequence[Checked], version: str = "") -> str:
    """One HTML document, with what each rule looks at and why."""
    return words.clean("\n".join(_page(checked, version)) + "\n")


def _page(checked: Sequence[Checked], version: str) -> Iterator[str]:
    title = words.heading(checked[0].report) if len(checked) == 1 else f"zdoctor check of {len(checked)} configs"
    yield "<!DOCTYPE html>"
    yield '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    yield "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    yield f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><main>"
    for one in checked:
        yield from _report(one.report, {rule.id: rule for rule in one.rules}, version)
    yield "</main></body></html>"


def _report(report: Report, rules: dict[str, Rule], version: str) -> Iterator[str]:
    yield f'<h1 dir="auto">{escape(words.heading(report))}</h1>'
    yield f'<p class="soft" dir="auto">{escape(" · ".join([f"zdoctor {version}".strip(), *words.who(report)]))}</p>'
    yield f'<p class="verdict {words.tone(report)}" dir="auto">{escape(words.verdict(report))}</p>'
    yield f'<p class="soft">{words.outcomes(report)} · {report.elapsed_ms:.0f} ms · exit code {report.exit_code}</p>'
    for output in report.outputs:
        yield f'<p class="soft" dir="auto">The run is written to {escape(output)}</p>'
    for number, (command, about) in enumerate(words.next_steps(report)):
        yield f"<p>{'Or' if number else 'Next'}: <code>{escape(command)}</code> {escape(about)}</p>"
    if told := words.own_trainer(report):
        yield f"<p>{escape(told)}</p>"
    if report.cut_short:
        yield f'<article class="crashed"><h2>Cut short</h2><p class="said">{escape(report.cut_short)}</p></article>'
    for finding in report.findings:
        yield from _finding(finding, rules.get(finding.rule))
    if open := words.unjudged(report):
        yield '<section class="unknown"><h2>Not judged</h2><ul>'
        yield from (f"<li><b>{', '.join(areas)}</b>: {escape(reason)}</li>" for reason, areas in open.items())
        yield "</ul></section>"
    yield from _outcomes("crashed", words.CRASHED.capitalize(), report.crashed, rules)
    yield from _outcomes("unknown", "Not known", report.unknown, rules)
    if report.passed:
        yield f"<details><summary>{len(report.passed)} rules passed</summary><ul>"
        yield from (f"<li>{_named(id, rules)}</li>" for id in report.passed)
        yield "</ul></details>"


def _finding(finding: Finding, rule: Rule | None) -> Iterator[str]:
    severity = finding.severity or "note"
    yield f'<article class="{severity}" data-rule="{escape(finding.rule)}">'
    yield f'<h2><span class="badge">{severity}</span> {escape(finding.rule)} {escape(finding.name)}</h2>'
    place = [f'<code dir="auto">{escape(part)}</code>' for part in (words.place(finding), words.key(finding)) if part]
    if place:
        yield f'<p class="where">{" ".join(place)}</p>'
    yield f'<p class="said" dir="auto">{escape(finding.text())}</p>'
    if finding.otherwise:
        yield f'<p class="said soft" dir="auto">Otherwise: {escape(finding.consequence())}</p>'
    if finding.fixes:
        yield "<ul>"
        yield from map(_fix, finding.fixes)
        yield "</ul>"
    if rule is not None:
        yield f"<details><summary>{escape(rule.title)}</summary>"
        yield from (f"<p><b>{name}.</b> {_documented(text)}</p>" for name, text in words.sections(rule))
        yield "</details>"
    yield "</article>"


def _fix(fix: Fix) -> str:
    how = words.how(fix)
    safety = f' <span class="soft">[{escape(how)}]</span>' if how else ""
    command = f"<pre>{escape(fix.command)}</pre>" if fix.command else ""
    return f'<li dir="auto">Fix: {escape(fix.title)}{safety}{command}</li>'


def _outcomes(kind: str, title: str, outcomes: Sequence[Outcome], rules: dict[str, Rule]) -> Iterator[str]:
    if outcomes:
        yield f"<h2>{title}</h2>"
    for reason, ids in words.by_reason(outcomes).items():
        named = ", ".join(f'<b data-rule="{escape(id)}">{_named(id, rules)}</b>' for id in ids)
        if (short := words.named(reason, ids)) != " ".join(ids):
            named = f"<b>{short}</b><details><summary>which</summary>{named}</details>"
        yield f'<article class="{kind}">{named}<p class="said" dir="auto">{escape(reason)}</p></article>'


def _named(id: str, rules: dict[str, Rule]) -> str:
    return escape(f"{id} {rules[id].name}" if id in rules else id)


def _documented(text: str) -> str:
    """Text of a docstring, its backticks as code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(" ".join(text.split())))
