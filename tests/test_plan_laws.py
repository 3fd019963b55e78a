"""Laws of plans, over every recorded machine with every config and every pair of its findings.

A plan never contradicts itself, and an edit of a config is offered where its result was parsed and examined.
"""

from __future__ import annotations

import re
from itertools import combinations, product

import pytest

from zdoctor.doctor.configs.edit import apply_edits
from zdoctor.doctor.examine.engine import prescribe
from zdoctor.doctor.examine.examination import Examination
from zdoctor.doctor.model import Finding, Fix, Plan, ReplaceText, Report, SetValue, Step, TrainingEffect, WriteText
from zdoctor.doctor.model.record import replace
from zdoctor.tests.machines import load
from zdoctor.tests.simulate import Record
from zdoctor.tests.test_laws import CONFIGS, OFTEN, first_look, key, look

WIDTHS: list[tuple[TrainingEffect, bool]] = [("none", False), ("changes-result", False), ("changes-result", True)]
COPIED = re.compile(r'(?:robocopy|cp -rL) "([^"]+)"')
WRITTEN = re.compile(
    r'(?:robocopy|cp -rL) "[^"]+" "([^"]+)"|--local-dir "([^"]+)"|save_pretrained\(\'([^\']+)/transformer'
)


def places(fix: Fix) -> set[str]:
    """Every file, folder and key that a fix writes or says to write, each as one path."""
    found = {"".join(found) for found in WRITTEN.findall(fix.command)}
    for step in fix.steps:
        part = (
            step.pointer
            if isinstance(step, SetValue)
            else f"/at {step.start}"
            if isinstance(step, ReplaceText)
            else ""
        )
        found.add(f"{step.path}{'/#' if part else ''}{part}")
    return {re.sub(r"[/\\]+", "/", place).rstrip("/") for place in found}


def within(one: str, other: str) -> bool:
    return one == other or one.startswith(f"{other}/") or other.startswith(f"{one}/")


def require_consistent(seen: Examination, report: Report, plan: Plan) -> None:
    of = {id(fix): finding for finding in report.findings for fix in finding.fixes}
    for one, other in combinations([*plan.fixes, *plan.shown], 2):
        choice = one in plan.shown and of[id(one)] is of[id(other)]
        both = [pair for pair in product(places(one), places(other)) if within(*pair)]
        assert choice or not both, f"{one.title} / {other.title}: {both}"
    values = seen.reading.config.values
    broken = {f.where.pointer for f in seen.report.errors if f.where is not None and f.where.pointer}
    named = {str(values[pointer].value).replace("\\", "/") for pointer in broken if pointer in values}
    for fix in (*plan.fixes, *plan.shown):
        copied = {path.replace("\\", "/") for path in COPIED.findall(fix.command)}
        assert not copied & named, f"{fix.title} copies what is broken"


def edits_of(fix: Fix) -> list[Step]:
    return [
        step
        for step in fix.steps
        if isinstance(step, SetValue | ReplaceText | WriteText) and step.path == "config.yaml"
    ]


def edited(text: str, steps: list[Step]) -> str:
    text = next((step.text for step in steps if isinstance(step, WriteText)), text)
    return apply_edits(text, [step for step in dict.fromkeys(steps) if isinstance(step, SetValue | ReplaceText)])


def require_proven(
    record: Record, text: str, before: Report, findings: tuple[Finding, ...], fixes: tuple[Fix, ...]
) -> None:
    """The fixes together, and with what is repaired at once, leave a config that parses, without what they cure."""
    at_once = [step for fix in prescribe(before).fixes for step in fix.steps if isinstance(step, ReplaceText)]
    after = look(record, edited(text, [*at_once, *(step for fix in fixes for step in edits_of(fix))])).report
    assert "CFG001" not in {finding.rule for finding in after.findings}
    whole = all(len(edits_of(fix)) == len(fix.steps) for fix in fixes)
    if not whole:  # what the other steps make is not there
        return
    assert not {key(f) for f in findings} & {key(f) for f in after.findings}, "the finding remains"
    unknown = {outcome.rule for outcome in before.unknown}
    new = {key(f) for f in after.errors} - {key(f) for f in before.errors}
    assert not {rule for rule, _ in new} - unknown, f"new errors: {new}"


@pytest.mark.parametrize(("machine", "config"), OFTEN)
def test_a_plan_for_any_two_findings_never_contradicts_itself(machine: str, config: str) -> None:
    seen = first_look(machine, config)
    for pair in [seen.report.findings, *combinations(seen.report.findings, 2)]:
        for allow, asked in WIDTHS:
            report = replace(seen.report, findings=tuple(pair))
            require_consistent(seen, report, prescribe(report, allow=allow, asked=asked))


@pytest.mark.parametrize(("machine", "config"), OFTEN)
def test_every_edit_that_is_offered_cures_and_brings_no_error(machine: str, config: str) -> None:
    seen, text, record = first_look(machine, config), CONFIGS[config].read_text(encoding="utf-8"), load(machine)
    offered = [(finding, fix) for finding in seen.report.findings for fix in finding.fixes if edits_of(fix)]
    for finding, fix in offered:
        require_proven(record, text, seen.report, (finding,), (fix,))
    for pair in combinations([finding for finding in seen.report.findings if any(map(edits_of, finding.fixes))], 2):
        plan = prescribe(replace(seen.report, findings=pair), allow="changes-result", asked=True)
        require_proven(
            record, text, seen.report, tuple(f for f in pair if set(f.fixes) & set(plan.fixes)), plan.fixes
        )
