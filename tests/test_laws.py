"""The laws of the house over every recorded machine and every config of the test bed."""

from __future__ import annotations

from functools import cache
from itertools import product
from pathlib import Path

import pytest

from zdoctor.doctor.examine.engine import examine, prescribe
from zdoctor.doctor.examine.examination import Examination, examine_config
from zdoctor.doctor.model import SEVERITIES, Facts, FetchFile, Finding, Plan, Report, TrainingEffect, Unknown
from zdoctor.doctor.model.plans import TRAINING_EFFECTS
from zdoctor.doctor.probe.recorded import RecordedWorld
from zdoctor.doctor.rules import FACT_NAMES, all_rules
from zdoctor.reports import FORMATS
from zdoctor.reports import json as json_report
from zdoctor.tests.machines import MACHINES, load
from zdoctor.tests.reports.read_back import READERS, in_full, of
from zdoctor.tests.simulate import Record, carry_out

ROOT = Path(__file__).parent.parent
CONFIGS = {p.name: p for p in sorted([*(ROOT / "tests" / "configs").glob("*.yaml"), *ROOT.glob("examples/*.yaml")])}
PAIRS = list(product(MACHINES, CONFIGS))
# What the servers are called says what they have.
SERVERS = ("a6000_shared", "healthy", "container")
# What is rightly said of them: the card has no bf16, and the model is named by its hub id.
HEALTHY = [
    ("healthy", "server_healthy.yaml", ()),
    ("kaggle_healthy", "kaggle_healthy.yaml", ("TRN002",)),
    ("windows_hdd", "windows_healthy.yaml", ("HUB006",)),
    ("flux_workstation", "flux_healthy.yaml", ()),
    ("gb10", "server_healthy.yaml", ()),
    ("rocm", "server_healthy.yaml", ()),
    ("mac", "server_healthy.yaml", ()),
    ("container", "server_healthy.yaml", ()),
]


def at_home(machine: str, config: str) -> bool:
    """Whether the config was written for this machine: what it is ill with shows there, and often there alone."""
    kind = config.partition("_")[0]
    return machine.startswith(kind) or (kind == "server" and machine in SERVERS)


# Of the others every seventh: that many have each machine and each config among them.
OFTEN = [
    pytest.param(*pair, marks=[pytest.mark.thorough] if at % 7 and not at_home(*pair) else [])
    for at, pair in enumerate(PAIRS)
]


def look(record: Record, text: str) -> Examination:
    return examine_config("config.yaml", RecordedWorld(record), text=text.encode())


@cache
def first_look(machine: str, config: str) -> Examination:
    return look(load(machine), CONFIGS[config].read_text(encoding="utf-8"))


@cache
def after(machine: str, config: str, plans: tuple[Plan, ...]) -> tuple[Record, str, Report]:
    """The machine, the config and its report once these plans were carried out one after the other."""
    if not plans:
        return load(machine), CONFIGS[config].read_text(encoding="utf-8"), first_look(machine, config).report
    before, text, _ = after(machine, config, plans[:-1])
    record, text = carry_out(plans[-1], before, text)
    return record, text, look(record, text).report


def key(finding: Finding) -> tuple[str, str | None]:
    return finding.rule, finding.where.pointer if finding.where is not None else None


def plan_of(report: Report, allow: TrainingEffect) -> Plan:
    """The plan without downloads, which a recorded machine cannot make."""
    plan = prescribe(report, allow=allow)
    kept = tuple(fix for fix in plan.fixes if not any(isinstance(step, FetchFile) for step in fix.steps))
    return Plan(plan.config, kept, plan.shown)


@pytest.mark.parametrize("allow", TRAINING_EFFECTS[::2])
@pytest.mark.parametrize(("machine", "config"), OFTEN)
def test_a_cure_cures_harms_nothing_and_is_done_once(machine: str, config: str, allow: TrainingEffect) -> None:
    before = first_look(machine, config).report
    plan = plan_of(before, allow)
    plans: tuple[Plan, ...] = ()
    if not plan.fixes:
        return
    for _ in range(3):  # a repair may uncover the next finding; `fix --apply` makes up to three passes
        plans = (*plans, plan)
        _, _, now = after(machine, config, plans)
        cured = {fix.rule for fix in plan.fixes}
        repaired = {key(f) for f in before.findings if f.rule in cured and set(f.fixes) & set(plan.fixes)}
        assert not repaired & {key(f) for f in now.findings}, "a cure does not cure"
        known = {key(f) for f in before.findings}
        worst = min(
            (SEVERITIES.index(f.severity or "note") for f in before.findings if key(f) in repaired), default=0
        )
        new = [f for f in now.findings if key(f) not in known and SEVERITIES.index(f.severity or "note") <= worst]
        hidden = before.unknown and any(o.rule in {f.rule for f in new} for o in before.unknown)
        assert not new or hidden, f"the plan does harm: {[f.text() for f in new]}"
        assert not now.crashed
        before, plan = now, plan_of(now, allow)
        if not plan.fixes:
            break
    assert not plan.fixes, "a repair is prescribed again and again"


@pytest.mark.parametrize(("machine", "config"), OFTEN)
def test_nothing_crashes_and_formats_agree_on_the_exit_code(machine: str, config: str) -> None:
    seen = first_look(machine, config)
    report = seen.report
    assert not report.crashed
    for format in FORMATS:
        page = in_full(format, report, rules=seen.rules, version="0.1.0", config=seen.written)
        assert READERS[format](page) == of(report), format
    data = json_report.as_data(report)
    assert data["ok"] == (report.exit_code == 0)
    assert len(data["findings"]) == len(report.findings)
    text = in_full("text", report)
    for finding in report.findings:
        assert f"{finding.rule} {finding.name}" in text
    assert "next: zdoctor train" not in text or report.ok


@pytest.mark.parametrize("fact", sorted(FACT_NAMES))
def test_unknown_is_never_green(fact: str) -> None:
    """Take any one fact away from a healthy setup: every rule that needs it says so, and none of them passes."""
    seen = first_look("healthy", "server_healthy.yaml")
    blind = Facts(**{**vars(seen.facts[0]), fact: Unknown("taken away")})
    report = examine(blind, all_rules(), config="c", trainer=None)
    silent = {rule.id for rule in all_rules() if fact in rule.needs}
    assert silent <= {outcome.rule for outcome in report.unknown}
    assert not silent & set(report.passed)
    for format in FORMATS:
        assert silent <= set(READERS[format](in_full(format, report, rules=all_rules())).unknown), format


@pytest.mark.parametrize(("machine", "config", "said"), HEALTHY)
def test_a_healthy_setup_is_silent(machine: str, config: str, said: tuple[str, ...]) -> None:
    report = first_look(machine, config).report
    assert [f"{f.rule} {f.text()}" for f in report.errors] == []
    assert tuple(f.rule for f in report.findings) == said and not report.unknown
    assert report.exit_code == 0
