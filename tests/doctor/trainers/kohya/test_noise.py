"""Noise levels are drawn as the trainers draw them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from diffusers.schedulers.scheduling_flow_match_euler_discrete import FlowMatchEulerDiscreteScheduler
from torch import Tensor

from zdoctor.doctor.train.families import flux as flux_family
from zdoctor.doctor.train.step.timestep_sampling import sample_timesteps

from .runs import SHIFT, run_of, trained


def normal(generator: torch.Generator) -> Tensor:
    return torch.randn(500, generator=generator)


def even(generator: torch.Generator) -> Tensor:
    return torch.rand(500, generator=generator)


def shifted(t: Tensor, shift: float) -> Tensor:
    return (t * shift) / (1 + (shift - 1) * t)


def by_mu(t: Tensor, slope: tuple[float, float, float, float], cells: int) -> Tensor:
    x1, y1, x2, y2 = slope
    mu = (y2 - y1) / (x2 - x1) * cells + y1 - (y2 - y1) / (x2 - x1) * x1
    return shifted(t, math.exp(mu))


def of_table(u: Tensor, shift: float) -> Tensor:
    table: Any = FlowMatchEulerDiscreteScheduler(num_train_timesteps=1000, shift=shift).timesteps
    times: Tensor = table[(u * 1000).long()] / 1000
    return times


CELLS = 1536  # of 2 x 2 in the latent of 768 x 512 pixels
TIMES: list[tuple[str, dict[str, Any], Callable[[torch.Generator], Tensor]]] = [
    ("flux_train_network", {}, lambda g: of_table(even(g), 3.0)),
    (
        "flux_train_network",
        {"weighting_scheme": "logit_normal", "logit_mean": 0.3, "discrete_flow_shift": 1.0},
        lambda g: of_table(torch.sigmoid(normal(g) + 0.3), 1.0),
    ),
    (
        "flux_train_network",
        {"weighting_scheme": "mode"},
        lambda g: of_table((lambda u: 1 - u - 1.29 * (torch.cos(math.pi * u / 2) ** 2 - 1 + u))(even(g)), 3.0),
    ),
    ("flux_train_network", {"timestep_sampling": "uniform", "min_timestep": 300}, even),
    (
        "flux_train_network",
        {"timestep_sampling": "sigmoid", "sigmoid_scale": 1.5},
        lambda g: (1.5 * normal(g)).sigmoid(),
    ),
    ("flux_train_network", {"timestep_sampling": "shift"}, lambda g: shifted(normal(g).sigmoid(), 3.0)),
    ("flux_train_network", {"timestep_sampling": "flux_shift"}, lambda g: by_mu(normal(g).sigmoid(), SHIFT, CELLS)),
    ("zimage_train_network", {}, lambda g: of_table(even(g), 1.0)),
    # its scheduler shifts the times of samples only
    ("flux_kontext_train_network", {"discrete_flow_shift": 3.0}, lambda g: of_table(even(g), 1.0)),
    (
        "zimage_train_network",
        {"timestep_sampling": "shift", "discrete_flow_shift": 2.0, "min_timestep": 100, "max_timestep": 900},
        lambda g: shifted(normal(g).sigmoid(), 2.0) * 0.8 + 0.1,
    ),
    (
        "zimage_train_network",
        {"timestep_sampling": "qwen_shift", "weighting_scheme": "logit_normal"},
        lambda g: by_mu(normal(g).sigmoid(), (256, 0.5, 8192, 0.9), CELLS),
    ),
    (
        "zimage_train_network",
        {"timestep_sampling": "flux2_shift"},  # by all cells of the latent
        lambda g: by_mu(normal(g).sigmoid(), SHIFT, 4 * CELLS),
    ),
    (
        "zimage_train_network",
        {"timestep_sampling": "logsnr", "logit_mean": -1.0, "logit_std": 2.0},
        lambda g: torch.sigmoid(-(2.0 * normal(g) - 1.0) / 2).flip(0),
    ),
    (
        "flux_kontext_train_network",
        {"timestep_sampling": "flux_shift"},
        lambda g: by_mu(normal(g).sigmoid(), SHIFT, CELLS),
    ),
]


@pytest.mark.parametrize(("script", "options", "theirs"), TIMES)
def test_noise_levels_are_the_trainers(
    script: str, options: dict[str, Any], theirs: Callable[[torch.Generator], Tensor]
) -> None:
    run = trained(run_of(script, options))
    t, weight = sample_timesteps(
        run.recipe.timestep_sampling, 500, torch.Generator().manual_seed(5), flux_family, CELLS
    )
    expected = theirs(torch.Generator().manual_seed(5))
    if options.get("timestep_sampling") == "logsnr":  # the other sign of the normal number: the same distribution
        at = torch.linspace(0.1, 0.9, 9)
        torch.testing.assert_close(torch.quantile(t, at), torch.quantile(expected, at), rtol=0, atol=0.08)
    else:
        torch.testing.assert_close(t, expected, rtol=1e-5, atol=2e-6)
    assert (weight == 1).all()
