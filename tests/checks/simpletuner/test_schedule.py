"""SIM011: a cosine of SimpleTuner falls in lr_warmup_steps steps, and rises again."""

from __future__ import annotations

from typing import Any

import pytest

from .runs import HEALTHY, ids, looked_at


@pytest.mark.parametrize(
    ("written", "last"),
    [
        # the rates that the class Cosine of custom_schedule.py (bc8e6ab7) sets for the last step, to a billionth
        ({"lr_scheduler": "cosine", "lr_warmup_steps": 5, "max_train_steps": 11}, 1e-4),
        ({"lr_scheduler": "cosine", "lr_warmup_steps": 5, "max_train_steps": 6}, 4e-7),
        ({"lr_scheduler": "cosine", "max_train_steps": 7}, 9.9991e-05),
        ({"lr_scheduler": "cosine", "lr_warmup_steps": 0, "max_train_steps": 7}, 9.9991e-05),
    ],
)
def test_a_cosine_that_does_not_end_with_the_run(written: dict[str, Any], last: float) -> None:
    (finding,) = looked_at({**HEALTHY, **written}).findings
    assert finding.rule == "SIM011"
    assert finding.evidence["last"] == pytest.approx(last, abs=2e-9)


def test_restarts_that_are_none() -> None:
    (finding,) = looked_at({**HEALTHY, "lr_scheduler": "cosine_with_restarts", "lr_warmup_steps": 9}).findings
    assert "stays at the learning rate" in finding.text()


@pytest.mark.parametrize(
    "written",
    [
        {"lr_scheduler": "cosine", "lr_warmup_steps": 1000},
        {"lr_scheduler": "cosine", "max_train_steps": 1000},
        {"lr_scheduler": "cosine", "max_train_steps": ..., "num_train_epochs": 3},  # of unknown length
        {"lr_scheduler": "polynomial", "lr_warmup_steps": 100},
        {"lr_scheduler": "constant_with_warmup", "lr_warmup_steps": 100},
        {},
    ],
)
def test_healthy(written: dict[str, Any]) -> None:
    assert ids(looked_at({**HEALTHY, **written})) == []
