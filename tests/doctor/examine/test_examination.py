"""How often a check asks its rules: once about the same facts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from zdoctor.doctor.examine import offers
from zdoctor.doctor.examine.examination import examine_config
from zdoctor.doctor.model import Config, Finding, Run
from zdoctor.doctor.model.facts import NOT_ASKED
from zdoctor.doctor.model.record import replace
from zdoctor.doctor.probe.gather import gather
from zdoctor.doctor.probe.recorded import RecordedWorld
from zdoctor.doctor.rules import Rule, all_rules
from zdoctor.tests.machines import load

ROOT = Path(__file__).parents[3]
CONFIGS = [
    ("kaggle_t4x2", "examples/kaggle_zimage.yaml"),
    ("healthy", "tests/configs/server_healthy.yaml"),
    ("kaggle_healthy", "tests/configs/kaggle_healthy.yaml"),
    ("flux_workstation", "tests/configs/flux_healthy.yaml"),
]
Calls = list[tuple[str, tuple[Any, ...]]]


def counting(rule: Rule, calls: Calls) -> Rule:
    check: Callable[..., Iterator[Finding]] = rule.check

    @wraps(check)
    def counted(*facts: Any) -> Iterator[Finding]:
        calls.append((rule.id, facts))
        yield from check(*facts)

    return replace(rule, check=counted)


@pytest.mark.parametrize("as_runner", [False, True])
@pytest.mark.parametrize(("machine", "config"), CONFIGS)
def test_a_rule_is_asked_once_about_a_run(
    machine: str, config: str, as_runner: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offers, "MOST_LOOKS", 0)  # what repairs would make of the config is another run
    calls: Calls = []
    rules = [counting(rule, calls) for rule in all_rules()]
    text = (ROOT / config).read_bytes()
    seen = examine_config("config.yaml", RecordedWorld(load(machine)), rules, text, as_runner=as_runner)
    assert len(seen.reading.runs) == 1 and not seen.report.crashed
    facts = Counter((id, tuple(map(_identity, facts))) for id, facts in calls)
    assert max(facts.values()) == 1, "asked twice about the same facts"
    times = Counter(id for id, _ in calls)
    looks = 1 if as_runner else 2  # the second is whether zdoctor's own runner would start
    assert max(times.values()) <= looks
    again = {id for id, count in times.items() if count > 1}
    needs = {rule.id: set(rule.needs) for rule in rules}
    assert all(needs[id] & {"run", "environment", "model", "writes", "room", "memory"} for id in again)
    answered = {finding.rule for finding in seen.report.findings} | set(seen.report.passed)
    assert answered <= set(times)


def _identity(fact: Any) -> object:
    """Two runs or two facts that are alike are the same to a rule."""
    return fact if isinstance(fact, Run | Config) else (type(fact), id(fact))


def test_what_is_known_is_not_established_again() -> None:
    world = RecordedWorld(load("kaggle_t4x2"))
    seen = examine_config("config.yaml", world, text=(ROOT / "examples/kaggle_zimage.yaml").read_bytes())
    (known,) = seen.facts
    config, run = seen.reading.config, known.run
    assert gather(world, config, run, ("model", "memory", "hub"), before=known) == known
    again = gather(world, config, run, ("model", "hub"), before=replace(known, model=NOT_ASKED))
    assert again.hub is known.hub and again.memory is known.memory
    assert again.model is not known.model and again.model == known.model
