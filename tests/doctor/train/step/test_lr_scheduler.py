"""Learning rates by step are those of torch's and diffusers' own schedulers."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from diffusers.optimization import (
    get_constant_schedule_with_warmup,
    get_cosine_schedule_with_warmup,
    get_cosine_with_hard_restarts_schedule_with_warmup,
    get_linear_schedule_with_warmup,
    get_polynomial_decay_schedule_with_warmup,
)
from torch.optim import lr_scheduler as torchs

from zdoctor.doctor.train.step.lr_scheduler import lr_factor

RATE = 2e-3
STEPS = 12


def theirs(make: Any, **settings: Any) -> list[float]:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=RATE)
    scheduler = make(optimizer, **settings)
    rates = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(STEPS):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
    return rates


CASES: list[tuple[str, dict[str, Any], Any, dict[str, Any]]] = [
    ("constant", {}, torchs.ConstantLR, {"factor": 1.0, "total_iters": STEPS}),
    ("constant", {"factor": 0.5}, torchs.ConstantLR, {"factor": 0.5, "total_iters": STEPS}),
    ("constant", {"factor": 0.5, "total_iters": 4}, torchs.ConstantLR, {"factor": 0.5, "total_iters": 4}),
    ("constant_with_warmup", {}, get_constant_schedule_with_warmup, {"num_warmup_steps": 1000}),
    ("constant_with_warmup", {"num_warmup_steps": 5}, get_constant_schedule_with_warmup, {"num_warmup_steps": 5}),
    ("linear", {"start_factor": 0.5}, torchs.LinearLR, {"start_factor": 0.5, "total_iters": STEPS}),
    (
        "linear",
        {"start_factor": 1.0, "end_factor": 0.0, "total_iters": 6},
        torchs.LinearLR,
        {"start_factor": 1.0, "end_factor": 0.0, "total_iters": 6},
    ),
    ("cosine", {"eta_min": 1e-4}, torchs.CosineAnnealingLR, {"T_max": STEPS, "eta_min": 1e-4}),
    ("cosine_with_restarts", {"total_iters": 5}, torchs.CosineAnnealingWarmRestarts, {"T_0": 5}),
    (
        "cosine_with_restarts",
        {"total_iters": 2, "T_mult": 2, "eta_min": 1e-4},
        torchs.CosineAnnealingWarmRestarts,
        {"T_0": 2, "T_mult": 2, "eta_min": 1e-4},
    ),
    ("step", {"step_size": 3}, torchs.StepLR, {"step_size": 3}),
    ("step", {"step_size": 5, "gamma": 0.5}, torchs.StepLR, {"step_size": 5, "gamma": 0.5}),
    (
        "polynomial",
        {},
        get_polynomial_decay_schedule_with_warmup,
        {"num_warmup_steps": 0, "num_training_steps": STEPS},
    ),
    (
        "polynomial",
        {"num_warmup_steps": 3, "total_iters": 9, "lr_end": 1e-4, "power": 2},
        get_polynomial_decay_schedule_with_warmup,
        {"num_warmup_steps": 3, "num_training_steps": 9, "lr_end": 1e-4, "power": 2},
    ),
    (
        "linear",
        {"num_warmup_steps": 0.25},
        get_linear_schedule_with_warmup,
        {"num_warmup_steps": 3, "num_training_steps": STEPS},
    ),
    (
        "cosine",
        {"num_warmup_steps": 3},
        get_cosine_schedule_with_warmup,
        {"num_warmup_steps": 3, "num_training_steps": STEPS},
    ),
    (
        "cosine_with_restarts",
        {"num_warmup_steps": 2, "num_cycles": 3},
        get_cosine_with_hard_restarts_schedule_with_warmup,
        {"num_warmup_steps": 2, "num_training_steps": STEPS, "num_cycles": 3},
    ),
    (
        "cosine_with_restarts",
        {"num_cycles": 1},
        get_cosine_with_hard_restarts_schedule_with_warmup,
        {"num_warmup_steps": 0, "num_training_steps": STEPS, "num_cycles": 1},
    ),
]


@pytest.mark.parametrize(("name", "settings", "make", "words"), CASES)
def test_rates_are_those_of_the_library(
    name: str, settings: dict[str, Any], make: Any, words: dict[str, Any]
) -> None:
    ours = [RATE * lr_factor(name, settings, RATE, step, STEPS) for step in range(STEPS)]
    assert ours == pytest.approx(theirs(make, **words), rel=1e-6, abs=1e-12)


def test_linear_without_factors_falls_to_zero() -> None:
    assert [lr_factor("linear", {}, RATE, step, 4) for step in range(5)] == [1.0, 0.75, 0.5, 0.25, 0.0]


def test_cosine_stays_down_when_it_has_arrived() -> None:
    assert [lr_factor("cosine", {"total_iters": 2}, RATE, step, 9) for step in (0, 2, 5)] == [1.0, 0.0, 0.0]
