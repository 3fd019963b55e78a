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
    assert not ward.healthy.reports[0].errors and not ward.healthy.reports[0].unknown
    for fault in setup.faults:
        assert ward.fate(fault, ward.story_of(fault).reports[0]) == "found", fault.name
