"""What `zdoctor explain RULE` says of a rule's precision."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import zdoctor
from zdoctor.doctor.cli import main
from zdoctor.doctor.rules import all_rules

MEASURED = json.loads((Path(zdoctor.__file__).parent / "doctor" / "rules" / "precision.json").read_text())


def test_the_measured_rules_are_rules() -> None:
    named = {rule.id for rule in all_rules()}
    assert MEASURED["configs"] >= 400
    for rule, (found, false) in MEASURED["errors"].items():
        assert rule in named and 0 <= false <= found


@pytest.mark.parametrize("rule", [next(iter(MEASURED["errors"])), "DSK002"])
def test_a_rule_says_how_often_it_was_right(rule: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One that no config found outside could show, as it is about a machine, says nothing of it."""
    assert main(["explain", rule]) == 0
    said = " ".join(capsys.readouterr().out.split())
    found, false = MEASURED["errors"].get(rule, (0, 0))
    line = f"Measured: {found} errors on {MEASURED['configs']} configs found outside, {false} of them false, after"
    assert (line in said) == bool(found) and ("Measured:" in said) == bool(found)
    first, wrong = MEASURED["unseen"]["errors"].get(rule, (0, 0))
    assert (f"before anything was mended by them: {first} errors, {wrong} of them false." in said) == bool(found)
