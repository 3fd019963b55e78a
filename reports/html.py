"""The report as one page that needs nothing else: no script, no asset, light or dark, to be read or printed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape

from ..doctor.model import Finding, Fix, Outcome, Report
from ..doctor.model.said import joined, language, said
from ..doctor.rules import Rule
from . import what_next, words
from .checked import Checked

# All of it below one class, doubled to outweigh the rules that a notebook has for what its cells show.
STYLE = """
.zdoctor.zdoctor {
  color-scheme: light dark; --ground: light-dark(#fbfbfa, #191918); --card: light-dark(#fff, #212120);
  --text: light-dark(#1d1d1b, #ecebe7); --soft: light-dark(#62615d, #a5a39d); --line: light-dark(#dddbd5, #3a3936);
  --code: light-dark(#f1f0ec, #2c2b29); --error: light-dark(#b3261e, #ff8a80); --note: light-dark(#22628f, #7cbdec);
  --warning: light-dark(#8a5a00, #e8b04a); --unknown: light-dark(#7a3e9d, #cf9be8);
  --good: light-dark(#2f6b34, #84c98a);
  background: var(--ground); color: var(--text); font: 15px/1.5 system-ui, sans-serif; max-width: 900px;
  overflow-wrap: anywhere; padding: .5em 1em;
  [data-jp-theme-light="true"] &, .vscode-light & { color-scheme: light; }
  [data-jp-theme-light="false"] &, .vscode-dark &, [theme="dark"] & { color-scheme: dark; }
  * { box-sizing: border-box; }
  h1, h2, p, b, ul, li, summary { color: inherit; font-family: inherit; line-height: inherit; }
  h1 { font-size: 1.5em; margin: 0; } h2 { font-size: 1.12em; margin: 2em 0 .6em; }
  article h2 { font-size: 1.07em; margin: 0; } p { font-size: 1em; margin: .4em 0; }
  code, pre { font: .9em/1.45 ui-monospace, Consolas, monospace; color: inherit; background: var(--code);
    border: 0; border-radius: 3px; }
  code { padding: .05em .3em; } pre { padding: .5em .7em; margin: .3em 0; white-space: pre-wrap; }
  .soft { color: var(--soft); } .said { white-space: pre-wrap; } .where { font-size: .9em; }
  .verdict { font-size: 1.17em; font-weight: 600; margin: .6em 0; }
  article { background: var(--card); border: 1px solid var(--line); border-left: 4px solid var(--kind);
    border-radius: 4px; padding: .7em 1em; margin: .8em 0; }
  .error, .crashed { --kind: var(--error); } .warning { --kind: var(--warning); } .note { --kind: var(--note); }
  .unknown { --kind: var(--unknown); } .good { --kind: var(--good); }
  .badge, .verdict { color: var(--kind); }
  .badge { font-size: .8em; text-transform: uppercase; letter-spacing: .05em; }
  ul { padding-left: 1.2em; margin: .4em 0; } li { margin: .3em 0; }
  details { margin-top: .5em; } summary { cursor: pointer; color: var(--soft); }
  @media print { color-scheme: light; font-size: 11pt; max-width: none; h2, summary { break-after: avoid; }
    li, p, pre { break-inside: avoid; } ::details-content { content-visibility: visible; block-size: auto; } }
}
"""
PAGE = """
:root { color-scheme: light dark; } body.zdoctor.zdoctor { margin: 2rem auto; padding: 0 1rem; }
@media print { body.zdoctor.zdoctor { margin: 0; } }
"""


def render(checked: Sequence[Checked], version: str = "") -> str:
    """One HTML document, with what each rule looks at and why."""
    return words.clean("\n".join(_page(checked, version)) + "\n")


def fragment(one: Checked) -> str:
    """What the page shows as a part of another page, such as a notebook, whose own style it leaves alone."""
    parts = [f'<div class="zdoctor"><style>{STYLE}</style>', *_report(one, ""), "</div>"]
    return words.clean("\n".join(parts))


def _page(checked: Sequence[Checked], version: str) -> Iterator[str]:
    title = words.heading(checked[0].report) if len(checked) == 1 else f"zdoctor check of {len(checked)} configs"
    yield "<!DOCTYPE html>"
    yield f'<html lang="{language()}"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width">'
    yield "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    yield f"<title>{escape(title)}</title><style>{STYLE}{PAGE}</style></head>"
    yield '<body class="zdoctor"><main>'
    for one in checked:
        yield from _report(one, version)
    yield "</main></body></html>"


def _report(one: Checked, version: str) -> Iterator[str]:
    report, rules = one.report, {rule.id: rule for rule in one.rules}
    yield f'<h1 dir="auto">{escape(words.heading(report))}</h1>'
    yield f'<p class="soft" dir="auto">{_said(joined(" · ", [f"zdoctor {version}".strip(), *words.who(report)]))}</p>'
    yield f'<p class="verdict {words.tone(report)}" dir="auto">{_said(words.verdict(report))}</p>'
    yield f'<p class="soft">{_said(_end(report))}</p>'
    for output in report.outputs:
        yield f'<p class="soft" dir="auto">{_said(f"The run is written to {output}")}</p>'
    yield from (f'<p class="soft" dir="auto">{_said(line)}</p>' for line in words.about(report))
    for number, (command, about) in enumerate(what_next.next_steps(report)):
        yield f"<p>{said('Or:') if number else said('Next:')} <code>{escape(command)}</code> {_said(about)}</p>"
    if told := what_next.own_trainer(report):
        yield f"<p>{_said(told)}</p>"
    if report.cut_short:
        yield f'<article class="crashed"><h2>{_said("Cut short")}</h2>'
        yield f'<p class="said">{_said(report.cut_short)}</p></article>'
    for finding in report.findings:
        yield from _finding(finding, rules.get(finding.rule))
    if open := words.unjudged(report):
        yield f'<section class="unknown"><h2>{said("Not judged")}</h2><ul>'
        yield from (f"<li><b>{_said(', '.join(areas))}</b>: {_said(reason)}</li>" for reason, areas in open.items())
        yield "</ul></section>"
    yield from _outcomes("crashed", words.CRASHED.capitalize(), report.crashed, rules)
    yield from _outcomes("unknown", "Not known", report.unknown, rules)
    if report.passed:
        yield f"<details><summary>{_said(f'{len(report.passed)} rules passed')}</summary><ul>"
        yield from (f"<li>{_named(id, rules)}</li>" for id in report.passed)
        yield "</ul></details>"


def _end(report: Report) -> str:
    return f"{words.outcomes(report)} · {report.elapsed_ms:.0f} ms · exit code {report.exit_code}"


def _said(text: str) -> str:
    return escape(said(text))


def _finding(finding: Finding, rule: Rule | None) -> Iterator[str]:
    severity = finding.severity or "note"
    yield f'<article class="{severity}" data-rule="{escape(finding.rule)}">'
    yield f'<h2><span class="badge">{said(severity)}</span> {escape(finding.rule)} {escape(finding.name)}</h2>'
    place = [f'<code dir="auto">{escape(part)}</code>' for part in (words.place(finding), words.key(finding)) if part]
    if place:
        yield f'<p class="where">{" ".join(place)}</p>'
    yield f'<p class="said" dir="auto">{_said(finding.text())}</p>'
    if finding.otherwise:
        yield f'<p class="said soft" dir="auto">{said("Otherwise:")} {_said(finding.consequence())}</p>'
    if finding.fixes:
        yield "<ul>"
        yield from map(_fix, finding.fixes)
        yield "</ul>"
    if rule is not None:
        yield f"<details><summary>{_said(rule.title)}</summary>"
        yield from (f"<p><b>{said(name)}.</b> {_documented(text)}</p>" for name, text in words.sections(rule))
        yield "</details>"
    yield "</article>"


def _fix(fix: Fix) -> str:
    how = words.how(fix)
    safety = f' <span class="soft">[{_said(how)}]</span>' if how else ""
    command = f"<pre>{escape(fix.command)}</pre>" if fix.command else ""
    return f'<li dir="auto">{said("Fix:")} {_said(fix.title)}{safety}{command}</li>'


def _outcomes(kind: str, title: str, outcomes: Sequence[Outcome], rules: dict[str, Rule]) -> Iterator[str]:
    if outcomes:
        yield f"<h2>{_said(title)}</h2>"
    for reason, ids in words.by_reason(outcomes).items():
        named = ", ".join(f'<b data-rule="{escape(id)}">{_named(id, rules)}</b>' for id in ids)
        if (short := words.named(reason, ids)) != " ".join(ids):
            named = f"<b>{_said(short)}</b><details><summary>{said('which')}</summary>{named}</details>"
        yield f'<article class="{kind}">{named}<p class="said" dir="auto">{_said(reason)}</p></article>'


def _named(id: str, rules: dict[str, Rule]) -> str:
    return escape(f"{id} {rules[id].name}" if id in rules else id)


def _documented(text: str) -> str:
    """Text of a docstring, its backticks as code."""
    told = "</p><p>".join(map(_said, words.paragraphs(text)))
    return re.sub("`([^`]+)`", r"<code>\1</code>", told)
