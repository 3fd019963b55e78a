"""Crash logs of every trainer in their real shapes: each leads to its cause."""

from __future__ import annotations

import pytest

from zdoctor.doctor.crash import explain
from zdoctor.doctor.model.crashes import Signature
from zdoctor.doctor.rules import all_rules

from .cases import CASES

SIGNATURES = [Signature(rule.id, *pair, rule.trainers) for rule in all_rules() for pair in rule.prevents]


@pytest.mark.parametrize("name", CASES)
def test_a_crash_is_explained(name: str) -> None:
    log, rule, word = CASES[name]
    seen = explain(log, SIGNATURES)
    assert seen.failure is not None
    assert seen.rules[:1] == ((rule,) if rule else ())
    if word:
        assert seen.known is not None and word in f"{seen.known.cause} {seen.known.do}"
    assert seen.known is not None or seen.rules
