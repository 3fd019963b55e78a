"""A repair of the config is offered where its result was parsed and examined: it cures, and brings no error.

Repairs of different places are tried together and, where that fails, in halves: mostly one more look at the config
tells of all of them, and as many as it has never take more than MOST_LOOKS.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from ..configs.edit import EditError, apply_edits
from ..configs.text import Lines
from ..errors import UserError
from ..model import Finding, Fix, ReplaceText, Report, SetValue, Step, WriteText
from ..model.record import dataclass, replace
from .places import Taken, written_by

MOST_LOOKS = 40
MOST_MENDED = 8
UNPARSABLE, UNKNOWN_KEY = "CFG001", "CFG002"

Key = tuple[str, str | None]
Again = Callable[[Mapping[str, str], bool], Report]
"""The report on the config as if files, by their paths, held these texts; by all rules, or by those on the config."""


@dataclass(frozen=True)
class Trial:
    """A fix that edits the config or a file beside it; `whole` when it does nothing else."""

    finding: Finding
    fix: Fix
    whole: bool


@dataclass(frozen=True)
class Bench:
    """What trials are held against: `texts` are the files, `repairs` the edits that the report presumes made.

    A fix that does more is held against the rules alone that look at no other file: what it makes is not there yet.
    """

    report: Report
    texts: Mapping[str, str]
    repairs: Sequence[Step]
    again: Again


def proven(bench: Bench) -> Report:
    """The report without the fixes whose result would not parse, or keep the finding, or bring new errors."""
    good: set[tuple[str, Fix]] = set()
    looks = MOST_LOOKS
    waiting = [tuple(together) for together in _rounds(bench)]
    while waiting and looks:
        together = waiting.pop(0)
        looks -= 1
        if _holds(bench, together):
            good.update((trial.finding.text(), trial.fix) for trial in together)
        elif len(together) > 1:
            half = len(together) // 2
            waiting += [together[:half], together[half:]]
    refused = {(trial.finding.text(), trial.fix) for trial in _trials(bench)} - good
    findings = []
    for finding in bench.report.findings:
        kept = tuple(fix for fix in finding.fixes if (finding.text(), fix) not in refused)
        findings.append(finding if len(kept) == len(finding.fixes) else replace(finding, fixes=kept))
    return replace(bench.report, findings=tuple(findings))


def edited(texts: Mapping[str, str], steps: Sequence[Step]) -> dict[str, str]:
    """The texts after the steps that edit them. Raises EditError."""
    changed: dict[str, str] = {}
    for path in dict.fromkeys(step.path for step in steps if step.path in texts):
        own = list(dict.fromkeys(step for step in steps if step.path == path))
        text = next((step.text for step in own if isinstance(step, WriteText)), texts[path])
        changed[path] = apply_edits(text, [step for step in own if isinstance(step, SetValue | ReplaceText)])
    return changed


def _trials(bench: Bench) -> Iterator[Trial]:
    for finding in bench.report.findings:
        for fix in finding.fixes:
            mine = [
                step.path in bench.texts and isinstance(step, SetValue | ReplaceText | WriteText)
                for step in fix.steps
            ]
            if any(mine):
                yield Trial(finding, fix, all(mine))


def _rounds(bench: Bench) -> list[list[Trial]]:
    """The trials, together as far as they are for other findings and write other places."""
    rounds: list[tuple[Taken, set[int], list[Trial]]] = []
    for trial in _trials(bench):
        places, of = list(written_by(trial.finding, trial.fix)), id(trial.finding)
        for taken, findings, trials in rounds:
            if trials[0].whole == trial.whole and of not in findings and not taken.any(places):
                break
        else:
            if len(rounds) == MOST_LOOKS:
                continue
            taken, findings, trials = Taken(), set(), []
            rounds.append((taken, findings, trials))
        taken.take(places)
        findings.add(of)
        trials.append(trial)
    return [trials for _, _, trials in rounds]


def _holds(bench: Bench, together: Sequence[Trial]) -> bool:
    before, whole = bench.report, together[0].whole
    try:
        texts = edited(bench.texts, [*bench.repairs, *(step for trial in together for step in trial.fix.steps)])
        after = _parsed(bench, texts, whole)
    except (EditError, UserError):
        return False
    if after is None:
        return False
    asked = {outcome.rule for outcome in before.unknown}
    new = {_key(finding) for finding in after.errors} - {_key(finding) for finding in before.errors}
    if any(rule not in asked for rule, _ in new) or _misplaced(bench, together, after):
        return False
    if not whole:
        return True
    had, have = (Counter(map(_key, report.findings)) for report in (before, after))
    cured = Counter(_key(trial.finding) for trial in together if trial.finding.rule != UNPARSABLE)
    return all(have[key] <= had[key] - count for key, count in cured.items())


def _misplaced(bench: Bench, together: Sequence[Trial], after: Report) -> bool:
    """Whether a key has come to where it means nothing, on a line that a repair of the layout moved."""
    moved = {
        Lines(step.path, bench.texts[step.path]).where(step.start).line
        for trial in together
        if trial.finding.rule == UNPARSABLE
        for step in trial.fix.steps
        if isinstance(step, ReplaceText) and not step.new.strip()
    }
    return any(f.rule == UNKNOWN_KEY and f.where is not None and f.where.line in moved for f in after.findings)


def _parsed(bench: Bench, texts: Mapping[str, str], whole: bool) -> Report | None:
    """The report on the texts, mended further where they still do not parse; None where that does not help."""
    texts = dict(texts)
    for _ in range(MOST_MENDED):
        report = bench.again(texts, whole)
        wrong = next((finding for finding in report.findings if finding.rule == UNPARSABLE), None)
        if wrong is None:
            return report
        fix = next((fix for fix in wrong.fixes if any(step.path in bench.texts for step in fix.steps)), None)
        if fix is None:
            return None
        texts |= edited({**bench.texts, **texts}, fix.steps)
    return None


def _key(finding: Finding) -> Key:
    return finding.rule, finding.where.pointer if finding.where is not None else None
