"""The rule engine: Facts -> Report, Report + Facts -> Plan. Pure: nothing is read, nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from ..model import (
    SEVERITIES,
    Facts,
    Finding,
    Fix,
    Outcome,
    Plan,
    Report,
    Run,
    Schema,
    SetValue,
    TrainingEffect,
    Unknown,
    Where,
)
from ..model.plans import TRAINING_EFFECTS
from ..model.record import dataclass, replace
from ..rules import NotApplicable, Repair, Repairs, Rule, RuleError, Unestablished
from .certain import certain, weighed
from .places import Taken, place_of, written_by

T = TypeVar("T")
# What is not there, or not read, makes other findings or hides them: it is told before these.
_CAUSES = ("CFG", "PTH", "DAT", "HUB", "MDL")


@dataclass(frozen=True)
class Answer:
    """What a rule says of its facts; `unknown` and `crashed` are the reasons why it does not.

    `applies` is false where it had nothing to look at.
    """

    findings: tuple[Finding, ...] = ()
    applies: bool = True
    unknown: str | None = None
    crashed: str | None = None


class Answers:
    """What the rules answered: none is asked twice about the same facts."""

    def __init__(self) -> None:
        self._given: dict[tuple[object, ...], tuple[list[Any], Answer]] = {}

    def of(self, rule: Rule, facts: Facts) -> Answer:
        arguments = _arguments(rule.needs, facts)
        key = (rule.id, *map(id, arguments))  # the arguments are kept, so that no other fact gets their ids
        if key not in self._given:
            self._given[key] = arguments, _answer(rule, arguments)
        return self._given[key][1]


def examine(
    facts: Facts, rules: Sequence[Rule], *, config: str, trainer: str | None, answers: Answers | None = None
) -> Report:
    """Ask every rule whose facts are known. A rule that raises is reported as crashed; the others go on."""
    answers = answers or Answers()
    said = {rule.id: answers.of(rule, facts) for rule in rules}
    run = facts.run if isinstance(facts.run, Run) else None
    schema = facts.schema if isinstance(facts.schema, Schema) else None
    findings = ordered(weighed((finding for answer in said.values() for finding in answer.findings), run, schema))
    unknown = tuple(Outcome(id, answer.unknown) for id, answer in said.items() if answer.unknown is not None)
    crashed = tuple(Outcome(id, answer.crashed) for id, answer in said.items() if answer.crashed is not None)
    passed = tuple(id for id in said if said[id] == Answer())
    not_applicable = tuple(id for id, answer in said.items() if not answer.applies)
    return Report(config, trainer, findings, unknown, crashed, passed, not_applicable)


def cures(report: Report, facts: Facts, repairs: Repairs) -> Report:
    """The report with the fixes of each finding. A repair that raises is reported, and the finding stays."""
    findings: list[Finding] = []
    crashed = list(report.crashed)
    for finding in report.findings:
        fixes: list[Fix] = []
        for repair in repairs.get(finding.rule, ()):
            try:
                fixes += _fixes(finding, facts, repair)
            except Exception as error:
                crashed.append(Outcome(finding.rule, f"its repair: {_reason(error, repair.plugin)}"))
        findings.append(replace(finding, fixes=tuple(fixes)))
    return replace(report, findings=tuple(_without_broken_sources(findings)), crashed=tuple(crashed))


def _without_broken_sources(findings: Sequence[Finding]) -> Iterator[Finding]:
    """No command copies what an error of the same place calls broken."""
    broken = {finding.where for finding in findings if finding.severity == "error" and finding.where is not None}
    for finding in findings:
        sound = tuple(fix for fix in finding.fixes if not fix.source or finding.where not in broken)
        yield finding if len(sound) == len(finding.fixes) else replace(finding, fixes=sound)


def merge(reports: Sequence[Report]) -> Report:
    """One report for several runs of one config: the same finding twice is said once, the worst outcome counts."""
    first = reports[0]
    findings: dict[tuple[str, str, Where | None], Finding] = {}
    for report in reports:
        for finding in report.findings:
            findings.setdefault((finding.rule, finding.text(), finding.where), finding)
    failed = {f.rule for f in findings.values()}
    crashed = tuple(dict.fromkeys(o for r in reports for o in r.crashed))
    unknown = tuple(dict.fromkeys(o for r in reports for o in r.unknown))
    unclear = failed | {o.rule for o in (*crashed, *unknown)}
    passed = {id for r in reports for id in r.passed} - unclear
    moot = {id for r in reports for id in r.not_applicable} - unclear - passed
    return replace(
        first,
        findings=ordered(findings.values()),
        unknown=unknown,
        crashed=crashed,
        passed=tuple(sorted(passed)),
        not_applicable=tuple(sorted(moot)),
    )


def prescribe(report: Report, *, allow: TrainingEffect = "none", asked: bool = False) -> Plan:
    """Choose a fix for every finding: the first safe one whose training effect is allowed; the rest are shown.

    With `asked` also one that is the user's decision, where the finding leaves no choice between several.
    No two findings write the same place: the later one is left for the next pass, as is what a plan makes moot.
    """
    widest = TRAINING_EFFECTS.index(allow)
    chosen: list[Fix] = []
    left: list[Finding] = []
    taken, replaced = Taken(), Taken()
    for finding in report.findings:
        doable = [f for f in finding.fixes if f.steps]
        decisions = [f for f in doable if f.safety == "ask"]
        wanted = [f for f in doable if f.safety == "safe" or (asked and decisions == [f])]
        ready = [f for f in wanted if TRAINING_EFFECTS.index(f.training_effect) <= widest]
        if not ready:
            left.append(finding)
            continue
        free = (f for f in ready if not taken.any(written_by(finding, f)))
        if not any(f in chosen for f in ready) and (fix := next(free, None)) is not None:
            chosen.append(fix)
            taken.take(written_by(finding, fix))
            replaced.take(place_of(*step.written) for step in fix.steps if isinstance(step, SetValue))
    chosen.sort(key=lambda fix: fix.order)
    return Plan(report.config, tuple(chosen), tuple(_shown(left, taken, replaced)))


def _shown(left: Sequence[Finding], taken: Taken, replaced: Taken) -> Iterator[Fix]:
    """The fixes of these findings that contradict neither what is chosen nor one another.

    Those of one finding are a choice between them. One about a value that is replaced waits for the next look.
    """
    said: set[tuple[object, ...]] = set()
    for finding in left:
        where = finding.where
        if where is not None and where.pointer and replaced.has(place_of(where.path, where.pointer)):
            continue
        fixes = [fix for fix in finding.fixes if not taken.any(written_by(finding, fix))]
        for fix in fixes:
            if (fix.title, fix.steps, fix.command) not in said:
                said.add((fix.title, fix.steps, fix.command))
                yield fix
        for fix in fixes:
            taken.take(written_by(finding, fix))


def _missing(arguments: Iterable[Any]) -> str | None:
    return next((value.reason for value in arguments if isinstance(value, Unknown)), None)


def _arguments(needs: Iterable[str], facts: Facts) -> list[Any]:
    return [getattr(facts, name) for name in needs]


def _answer(rule: Rule, arguments: list[Any]) -> Answer:
    reason = _missing(arguments)
    if reason is not None:
        return Answer(unknown=reason)
    try:
        said = _yielded(rule.check, rule.plugin, rule.needs, arguments)
        applies = bool(said) or not _is_nothing(rule.needs, arguments)
        kept, doubt = certain(said, next((fact for fact in arguments if isinstance(fact, Run)), None))
        return Answer(tuple(_signed(finding, rule) for finding in kept), applies, doubt)
    except NotApplicable:
        return Answer(applies=False)
    except Unestablished as error:
        return Answer(unknown=error.args[0])
    except Exception as error:
        return Answer(crashed=_reason(error, rule.plugin))


def _is_nothing(needs: Sequence[str], arguments: Sequence[Any]) -> bool:
    """Whether what a rule looks at, the first of its facts beside the config, holds nothing."""
    looked_at = (fact for name, fact in zip(needs, arguments, strict=True) if name not in ("config", "run"))
    first = next(looked_at, True)
    return first is None or first == () or getattr(first, "is_empty", False)


def _fixes(finding: Finding, facts: Facts, repair: Repair) -> Iterator[Fix]:
    arguments = _arguments(repair.needs, facts)
    if _missing(arguments) is None:
        for fix in _yielded(repair.cure, repair.plugin, ("the finding", *repair.needs), [finding, *arguments]):
            if not isinstance(fix, Fix):
                raise RuleError(f"it yields {type(fix).__name__}, no Fix")
            yield replace(fix, rule=finding.rule)


def _yielded(asked: Callable[..., Iterable[T]], plugin: str, names: Sequence[str], arguments: list[Any]) -> list[T]:
    """What a check or a cure yields. One of a plug-in gets copies, so that what it alters is its own, and is said."""
    if not plugin:
        return list(asked(*arguments))
    from copy import deepcopy

    copies = deepcopy(arguments)
    found = list(asked(*copies))
    altered = [name for name, copy, fact in zip(names, copies, arguments, strict=True) if copy != fact]
    if altered:
        raise RuleError(f"it alters {', '.join(altered)}")
    return found


def _signed(finding: Finding, rule: Rule) -> Finding:
    if not isinstance(finding, Finding):
        raise RuleError(f"it yields {type(finding).__name__}, no Finding")
    severity = rule.severity if rule.settled else finding.severity or rule.severity
    signed = replace(finding, rule=rule.id, name=rule.name, severity=severity)
    if signed.severity not in SEVERITIES:
        raise RuleError(f"{signed.severity!r} is no severity")
    # an argument that a template lacks is the rule's error, not the report's
    signed.text()
    signed.consequence()
    return signed


def _reason(error: Exception, plugin: str) -> str:
    of = f"the plug-in {plugin}: " if plugin else ""
    return f"{of}{type(error).__name__}: {error}"


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The gravest first, of these the causes, of these in the order of the file."""

    def key(finding: Finding) -> tuple[int, int, int, str]:
        where, organ = finding.where, finding.rule[:3]
        line = where.line if where is not None and where.line is not None else 1 << 30
        depth = _CAUSES.index(organ) if organ in _CAUSES else len(_CAUSES)
        return (SEVERITIES.index(finding.severity or "note"), depth, line, finding.rule)

    return tuple(sorted(findings, key=key))
