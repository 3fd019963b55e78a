"""Times drawn one by one are those that kohya's trainers and SimpleTuner compute from the same random numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from diffusers.schedulers.scheduling_flow_match_euler_discrete import FlowMatchEulerDiscreteScheduler
from torch import Tensor

from zdoctor.doctor.model.objective import TimestepDensity
from zdoctor.doctor.train.families import zimage
from zdoctor.doctor.train.settings.refuse import refuse
from zdoctor.doctor.train.step.timestep_sampling import sample_timesteps, timesteps_from_density

from ..patient import run_with

SIZE, CELLS = 4000, 1024
FLUX = (256.0, 0.5, 4096.0, 1.15)


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def shifted(t: Tensor, shift: float) -> Tensor:
    return (t * shift) / (1 + (shift - 1) * t)


def by_size(t: Tensor) -> Tensor:
    """flux_shift: mu on the line through (256, 0.5) and (4096, 1.15), and the flow of exp(mu)."""
    mu = 0.5 + (1.15 - 0.5) / (4096 - 256) * (CELLS - 256)
    return math.exp(mu) / (math.exp(mu) + (1 / t - 1))


def normal() -> Tensor:
    return torch.randn(SIZE, generator=seeded())


def even() -> Tensor:
    return torch.rand(SIZE, generator=seeded())


def by_table(u: Tensor, shift: float) -> Tensor:
    """sigma: the number picks one of a scheduler's times, from the noisy end."""
    scheduler = FlowMatchEulerDiscreteScheduler(num_train_timesteps=1000, shift=shift)
    steps: Any = scheduler.timesteps
    times: Tensor = steps[(u * 1000).long()] / 1000
    return times


def mode(u: Tensor) -> Tensor:
    return 1 - u - 1.29 * (torch.cos(math.pi * u / 2) ** 2 - 1 + u)


CASES: list[tuple[str, dict[str, Any], Callable[[], Tensor]]] = [
    ("uniform", {}, even),
    ("sigmoid", {"density": "logit_normal", "spread": 1.4}, lambda: torch.sigmoid(1.4 * normal())),
    ("shift", {"density": "logit_normal", "shift": 3.1}, lambda: shifted(normal().sigmoid(), 3.1)),
    ("flux_shift", {"density": "logit_normal", "shift": FLUX}, lambda: by_size(normal().sigmoid())),
    ("logsnr", {"density": "logit_normal", "mean": -0.5, "spread": 0.5}, lambda: torch.sigmoid(-(normal() - 1) / -2)),
    ("sigma", {"stepped": True, "shift": 3.0}, lambda: by_table(even(), 3.0)),
    (
        "sigma, logit-normal",
        {"density": "logit_normal", "mean": 0.2, "spread": 0.8, "stepped": True},
        lambda: by_table(torch.sigmoid(0.2 + 0.8 * normal()), 1.0),
    ),
    ("sigma, mode", {"density": "mode", "stepped": True}, lambda: by_table(mode(even()), 1.0)),
    ("pressed", {"low": 0.2, "high": 0.9}, lambda: even() * (0.9 - 0.2) + 0.2),
]


@pytest.mark.parametrize(("how", "theirs"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_times_are_the_trainers(how: dict[str, Any], theirs: Callable[[], Tensor]) -> None:
    run = run_with(timestep_sampling={"type": "drawn", "density": TimestepDensity(**how)})
    assert not refuse(run)
    t, weight = sample_timesteps(run.recipe.timestep_sampling, SIZE, seeded(), zimage, CELLS)
    torch.testing.assert_close(t, theirs(), rtol=1e-5, atol=2e-6)
    assert (weight == 1).all()


def test_a_cut_range_keeps_the_shape_of_what_is_left() -> None:
    whole = timesteps_from_density(TimestepDensity("logit_normal", shift=2.0), SIZE, seeded(), CELLS)
    part = timesteps_from_density(
        TimestepDensity("logit_normal", shift=2.0, low=0.3, high=0.8, cut=True), SIZE, seeded(), CELLS
    )
    assert part.min() >= 0.3 and part.max() <= 0.8
    inside = whole[(whole >= 0.3) & (whole <= 0.8)]
    at = torch.tensor([0.25, 0.5, 0.75])
    torch.testing.assert_close(torch.quantile(part, at), torch.quantile(inside, at), rtol=0, atol=0.02)


def test_a_range_that_is_never_met_ends() -> None:
    t = timesteps_from_density(
        TimestepDensity("logit_normal", spread=0.0, low=0.9, high=1.0, cut=True), 4, seeded(), CELLS
    )
    assert (t == torch.full((4,), 0.9)).all()
