"""The rule engine: Facts -> Report, Report + Facts -> Plan. Pure: nothing is read, nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..model import (
    SEVERITIES,
    Facts,
    Finding,
    Fix,
    Outcome,
    Plan,
    Report,
    TrainingEffect,
    Unknown,
    Where,
)
from ..model.record import replace
from ..rules import Repair, Rule, Unestablished

TRAINING_EFFECTS: tuple[TrainingEffect, ...] = ("none", "equivalent", "changes-result")


def examine(
    facts: Facts, rules: Sequence[Rule], repairs: dict[str, tuple[Repair, ...]], *, config: str, trainer: str | None
) -> Report:
    """Run every rule whose facts are known. A rule that raises is reported as crashed; the others go on."""
    findings: list[Finding] = []
    unknown: list[Outcome] = []
    crashed: list[Outcome] = []
    passed: list[str] = []
    for rule in rules:
        reason = _missing(rule.needs, facts)
        if reason is not None:
            unknown.append(Outcome(rule.id, reason))
            continue
        try:
            produced = list(rule.check(*_arguments(rule.needs, facts)))
        except Unestablished as error:
            unknown.append(Outcome(rule.id, str(error)))
            continue
        except Exception as error:
            crashed.append(Outcome(rule.id, f"{type(error).__name__}: {error}"))
            continue
        findings.extend(_sign(finding, rule) for finding in produced)
        if not produced:
            passed.append(rule.id)
    with_fixes: list[Finding] = []
    for finding in findings:
        try:
            fixes = tuple(_cures(finding, facts, repairs.get(finding.rule, ())))
        except Exception as error:
            crashed.append(Outcome(finding.rule, f"its repair: {type(error).__name__}: {error}"))
            fixes = ()
        with_fixes.append(replace(finding, fixes=fixes))
    return Report(config, trainer, _ordered(with_fixes), tuple(unknown), tuple(crashed), tuple(passed))


def merge(reports: Sequence[Report]) -> Report:
    """One report for several runs of one config: the same finding twice is said once, the worst outcome counts."""
    first = reports[0]
    findings: dict[tuple[str, str, Where | None], Finding] = {}
    for report in reports:
        for finding in report.findings:
            findings.setdefault((finding.rule, finding.text(), finding.where), finding)
    failed = {f.rule for f in findings.values()}
    crashed = _unique(o for r in reports for o in r.crashed)
    unknown = _unique(o for r in reports for o in r.unknown)
    unclear = failed | {o.rule for o in (*crashed, *unknown)}
    passed = dict.fromkeys(id for r in reports for id in r.passed if id not in unclear)
    return replace(
        first, findings=_ordered(findings.values()), unknown=unknown, crashed=crashed, passed=tuple(sorted(passed))
    )


def prescribe(report: Report, *, allow: TrainingEffect = "none", asked: bool = False) -> Plan:
    """Choose a fix for every finding: the first safe one whose training effect is allowed; the rest are shown.

    With `asked` also one that is the user's decision, where the finding leaves no choice between several.
    Two fixes never write the same config key or file: the later one is left for the next pass.
    """
    widest = TRAINING_EFFECTS.index(allow)
    chosen: list[Fix] = []
    shown: list[Fix] = []
    taken: set[object] = set()
    for finding in report.findings:
        decisions = [f for f in finding.fixes if f.steps and f.safety == "ask"]
        ready = [
            f
            for f in finding.fixes
            if f.steps
            and (f.safety == "safe" or (asked and decisions == [f]))
            and TRAINING_EFFECTS.index(f.training_effect) <= widest
        ]
        if not ready:
            shown.extend(f for f in finding.fixes if f not in shown)
            continue
        if any(f in chosen for f in ready):
            continue
        for fix in ready:
            targets = {step.written for step in fix.steps}
            if targets.isdisjoint(taken):
                chosen.append(fix)
                taken |= targets
                break
    chosen.sort(key=lambda fix: fix.order)
    return Plan(report.config, tuple(chosen), tuple(shown))


def _missing(needs: Iterable[str], facts: Facts) -> str | None:
    for name in needs:
        value = getattr(facts, name)
        if isinstance(value, Unknown):
            return value.reason
    return None


def _arguments(needs: Iterable[str], facts: Facts) -> list[Any]:
    return [getattr(facts, name) for name in needs]


def _sign(finding: Finding, rule: Rule) -> Finding:
    return replace(finding, rule=rule.id, name=rule.name, severity=finding.severity or rule.severity)


def _cures(finding: Finding, facts: Facts, repairs: Sequence[Repair]) -> Iterable[Fix]:
    for repair in repairs:
        if _missing(repair.needs, facts) is None:
            cure: Callable[..., Iterable[Fix]] = repair.cure
            for fix in cure(finding, *_arguments(repair.needs, facts)):
                yield replace(fix, rule=finding.rule)


def _ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    def key(finding: Finding) -> tuple[int, int, str]:
        where = finding.where
        line = where.line if where is not None and where.line is not None else 1 << 30
        return (SEVERITIES.index(finding.severity or "note"), line, finding.rule)

    return tuple(sorted(findings, key=key))


def _unique(outcomes: Iterable[Outcome]) -> tuple[Outcome, ...]:
    return tuple(dict.fromkeys(outcomes))
