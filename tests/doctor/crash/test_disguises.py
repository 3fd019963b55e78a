"""Whatever a log went through before it came here, its explanation is the same."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import pytest

from zdoctor.doctor.crash import explain
from zdoctor.doctor.crash.messages import CUT_OFF
from zdoctor.doctor.model.crashes import Explanation

from .cases import CASES
from .disguises import DISGUISES, utf_16
from .test_cases import SIGNATURES

PLAIN: dict[str, Explanation] = {}


@pytest.fixture(scope="module", autouse=True)
def plain() -> None:
    PLAIN.update({name: explain(log, SIGNATURES) for name, (log, _, _) in CASES.items()})


@pytest.mark.parametrize("one_in", [2, pytest.param(1, marks=pytest.mark.thorough)], ids=["some", "all"])
@pytest.mark.parametrize("disguise", DISGUISES, ids=lambda one: one.__name__)
def test_a_disguised_log_is_explained_like_the_plain_one(disguise: Callable[[str], str], one_in: int) -> None:
    """Every second log, and after another disguise the others."""
    other = {}
    first = DISGUISES.index(disguise) % one_in
    for name, (log, _, _) in islice(CASES.items(), first, None, one_in):
        seen = explain(disguise(log), SIGNATURES)
        if name == "log that is cut off" and seen.failure is not None and seen.failure.name == CUT_OFF:
            continue  # what of it is left to tell where it was differs
        if seen.rules == PLAIN[name].rules == ("MEM001",) and seen.failure is not None and not seen.failure.frames:
            continue  # without its frames nothing tells the phase
        if (seen.known, seen.rules, seen.site) != (PLAIN[name].known, PLAIN[name].rules, PLAIN[name].site):
            other[name] = seen.failure
    assert other == {}


def test_a_disguise_is_one() -> None:
    for disguise in set(DISGUISES) - {utf_16}:  # which is one of bytes
        assert sum(disguise(log) != log for log, _, _ in CASES.values()) > 12, disguise.__name__
