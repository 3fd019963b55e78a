"""Faults planted two by two in one patient: a sample of what benchmarks/pairs.py tries as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from zdoctor.tests.pairs.judge import Setup, Ward
from zdoctor.tests.pairs.setups import SETUPS

EVERY = pytest.mark.parametrize("setup", SETUPS, ids=[setup.name for setup in SETUPS])


@EVERY
def test_every_fault_is_found_where_it_is_alone(setup: Setup, tmp_path: Path) -> None:
    ward = Ward(setup, tmp_path, repairs=False)
    healthy = ward.healthy.reports[0]
    # the memory of trainers that swap blocks as they go is not predicted
    assert not healthy.errors and {outcome.rule for outcome in healthy.unknown} <= {"MEM001", "MEM002"}
    for fault in setup.faults:
        assert ward.fate(fault, ward.story_of(fault).reports[0]) == "found", fault.name
