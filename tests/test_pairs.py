"""Faults planted two by two in one patient: a sample of what benchmarks/pairs.py tries as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from zdoctor.tests.pairs.judge import Setup, Verdict, Ward, serve
from zdoctor.tests.pairs.setups import SETUPS

SELDOM = ("ai-toolkit-flux", "musubi-zimage")
EVERY = pytest.mark.parametrize("setup", SETUPS, ids=[setup.name for setup in SETUPS])
# One of each trainer's; what these do not have comes when asked for.
OFTEN = pytest.mark.parametrize(
    "setup",
    [pytest.param(setup, marks=[pytest.mark.thorough] if setup.name in SELDOM else []) for setup in SETUPS],
    ids=[setup.name for setup in SETUPS],
)


@OFTEN
def test_every_fault_is_found_where_it_is_alone(setup: Setup, tmp_path: Path) -> None:
    ward = Ward(setup, tmp_path, repairs=False)
    healthy = ward.healthy.reports[0]
    # the memory of trainers that swap blocks as they go is not predicted
    assert not healthy.errors and {outcome.rule for outcome in healthy.unknown} <= {"MEM001", "MEM002"}
    for fault in setup.faults:
        assert ward.fate(fault, ward.story_of(fault).reports[0]) == "found", fault.name


@pytest.mark.thorough
@EVERY
def test_of_two_faults_both_are_found_or_it_is_said_what_could_not_be_looked_at(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """one pair in 150, with the repairs and their undo; a hub of our own has what they download."""
    ward = Ward(setup, tmp_path)
    tried = 0
    with serve(ward) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        for verdict in ward.pairs(lambda number: number % 149 == 7):
            if isinstance(verdict, Verdict):
                tried += 1
                assert "missed" not in verdict.fates and not verdict.objections, verdict
    assert tried > 5
