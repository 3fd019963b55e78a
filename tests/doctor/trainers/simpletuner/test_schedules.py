"""Learning rates by step are those of SimpleTuner's own schedules."""

from __future__ import annotations

from typing import Any

import pytest

from zdoctor.doctor.train.step.lr_scheduler import lr_factor

from .runs import said, trained

# What the classes Cosine and Sine of custom_schedule.py (bc8e6ab7) set, stepped after each update by accelerate 1.15.
RATES: list[tuple[dict[str, Any], list[float]]] = [
    (
        {"lr_scheduler": "cosine", "lr_warmup_steps": 5},
        [1e-4, 9.0489e-05, 6.5589e-05, 3.481e-05, 9.91e-06, 4e-07, 9.91e-06, 3.481e-05, 6.5589e-05, 9.0489e-05, 1e-4],
    ),
    ({"lr_scheduler": "cosine"}, [1e-4, 9.9999e-05, 9.9999e-05, 9.9997e-05, 9.9996e-05, 9.9993e-05, 9.9991e-05]),
    (
        {"lr_scheduler": "cosine", "lr_warmup_steps": 4, "learning_rate": 3.3e-5, "lr_end": 1e-8},
        [3.3e-05, 2.8168e-05, 1.6505e-05, 4.841e-06, 1e-08, 4.841e-06, 1.6505e-05, 2.8168e-05, 3.3e-05],
    ),
    (
        {"lr_scheduler": "sine", "lr_warmup_steps": 5},
        [5.02e-05, 7.9471e-05, 9.7562e-05, 9.7562e-05, 7.9471e-05, 5.02e-05, 2.0928e-05, 2.837e-06, 2.837e-06],
    ),
    (
        {"lr_scheduler": "sine", "lr_warmup_steps": 3, "learning_rate": 2e-4, "lr_end": 0.0},
        [0.0001, 0.000186602, 0.000186602, 0.0001, 1.3397e-05, 1.3397e-05, 9.9999e-05, 0.000186602],
    ),
]


@pytest.mark.parametrize(("written", "rates"), RATES, ids=range(len(RATES)))
def test_rates_are_simpletuners(written: dict[str, Any], rates: list[float]) -> None:
    run = trained({"max_train_steps": 11, **written})
    rate = run.recipe.learning_rate
    ours = [
        rate * lr_factor(run.recipe.lr_scheduler.name, run.recipe.lr_scheduler.settings, rate, n, run.recipe.steps)
        for n in range(len(rates))
    ]
    assert ours == pytest.approx(rates, rel=1e-9, abs=0)


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ({"lr_scheduler": "sine"}, "lr_scheduler sine needs lr_warmup_steps, half of its period"),
        ({"lr_scheduler": "cosine_with_restarts", "lr_warmup_steps": 9}, "SimpleTuner's stays at the learning rate"),
        ({"lr_scheduler": "polynomial2"}, "lr_scheduler polynomial2 is not supported; use constant"),
    ],
)
def test_the_rest_is_refused_by_name(written: dict[str, Any], why: str) -> None:
    assert why in said(written)
