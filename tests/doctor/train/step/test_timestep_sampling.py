"""Noise levels follow the distributions that ai-toolkit draws from."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from diffusers.schedulers.scheduling_flow_match_euler_discrete import FlowMatchEulerDiscreteScheduler
from torch import Tensor

from zdoctor.doctor.train.families import FamilyModule, flux, qwen_image, shift, zimage
from zdoctor.doctor.train.settings import names
from zdoctor.doctor.train.settings.names import FAVOURS, SCHEMES
from zdoctor.doctor.train.step.loss import LOSSES
from zdoctor.doctor.train.step.timestep_sampling import (
    COUNT,
    FEW_STEPS,
    sample_timesteps,
    scheme_and_weighting,
    timestep_table,
    timestep_weights,
)

from ..patient import run_with, written


def many(scheme: str, favour: str = "balanced") -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return sample_timesteps(
        run_with(timestep_type=scheme, content_or_style=favour).recipe.timestep_sampling,
        40_000,
        generator,
        zimage,
        16,
    )[0]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_tables_fall_from_noise_to_clean(scheme: str) -> None:
    families: tuple[FamilyModule, ...] = (zimage, flux)
    for family in families:
        table = timestep_table(scheme, torch.Generator().manual_seed(0), family, 4096)
        assert table.shape == (COUNT,)
        assert (table[:-1] >= table[1:]).all()
        assert table.min() >= 0.0 and table.max() <= 1.0


@pytest.mark.parametrize(
    ("scheme", "quantiles"),
    [
        ("sigmoid", (0.338, 0.501, 0.662)),
        ("linear", (0.25, 0.5, 0.75)),
        ("weighted", (0.25, 0.5, 0.75)),
        ("shift", (0.5, 0.75, 0.9)),
    ],
)
def test_quantiles(scheme: str, quantiles: tuple[float, ...]) -> None:
    found = torch.quantile(many(scheme), torch.tensor([0.25, 0.5, 0.75]))
    torch.testing.assert_close(found, torch.tensor(quantiles), rtol=0, atol=0.03)


def test_content_prefers_noise_and_style_detail() -> None:
    medians = {favour: many("linear", favour).median().item() for favour in FAVOURS}
    assert medians["content"] == pytest.approx(0.875, abs=0.01)
    assert medians["style"] == pytest.approx(0.125, abs=0.01)


@pytest.mark.parametrize("scheme", ["shift", "flux_shift", "lumina2_shift"])
def test_shifted_times_are_those_of_the_scheduler(scheme: str) -> None:
    scheduler = FlowMatchEulerDiscreteScheduler(num_train_timesteps=1000, shift=3.0)
    scheduler.set_timesteps(1000)
    table = timestep_table(scheme, torch.Generator(), zimage, 4096)
    torch.testing.assert_close(table * 1000, scheduler.timesteps, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize(("width", "height", "middle"), [(512, 512, 0.653), (1024, 1024, 0.760), (768, 1344, 0.758)])
def test_flux_shifts_larger_pictures_more(width: int, height: int, middle: float) -> None:
    """exp(mu) / (exp(mu) + 1) amid the table, mu from 0.5 at 256 cells to 1.15 at 4096: the scheduler's numbers."""
    cells = width * height // 256
    scheduler: Any = FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True)
    scheduler.set_timesteps(sigmas=torch.linspace(1, 1 / 1000, 1000).tolist(), mu=shift(cells, scheduler.config))
    table = timestep_table("flux_shift", torch.Generator(), flux, cells)
    torch.testing.assert_close(table * 1000, scheduler.timesteps, rtol=1e-5, atol=1e-3)
    assert table[500].item() == pytest.approx(middle, abs=1e-3)


def test_qwen_image_shifts_and_ends_above_zero() -> None:
    """The schedule that ai-toolkit writes for it: shifted by size, then stretched so that it ends at 0.02."""
    scheduler: Any = FlowMatchEulerDiscreteScheduler(**qwen_image.RECORD.scheduler({}))
    scheduler.set_timesteps(sigmas=torch.linspace(1, 1 / 1000, 1000).tolist(), mu=shift(4096, scheduler.config))
    table = timestep_table("shift", torch.Generator(), qwen_image, 4096)
    torch.testing.assert_close(table * 1000, scheduler.timesteps, rtol=1e-5, atol=1e-3)
    assert table[-1].item() == pytest.approx(0.02, abs=1e-6)


def test_a_blend_is_three_quarters_log_normal() -> None:
    table = timestep_table("lognorm_blend", torch.Generator().manual_seed(0), zimage, 16) * 1000
    torch.manual_seed(0)
    make: Any = torch.distributions.LogNormal(0.0, 0.333)
    early = make.sample((750,))
    theirs = torch.cat([1000 * (1 - early / early.max()), torch.linspace(1000, 1, 250)]).sort(descending=True).values
    torch.testing.assert_close(table, theirs.int().float(), rtol=0, atol=1.001)


@pytest.mark.parametrize(("scheme", "few"), FEW_STEPS.items())
def test_few_steps_pick_the_beginnings_of_a_short_sampling(scheme: str, few: tuple[int, ...]) -> None:
    assert sorted(set(many(scheme).tolist())) == pytest.approx(sorted(1 - i / 1000 for i in few), abs=1e-3)
    assert few == tuple(i * 1000 // len(few) for i in range(len(few))) or scheme == "two_step"


@pytest.mark.parametrize(("favour", "lowest"), [("balanced", 501), ("content", 500), ("style", 500)])
def test_a_span_of_the_table(favour: str, lowest: int) -> None:
    noise = run_with(
        content_or_style=favour, timestep_type="linear", settings=written(train__max_denoising_steps=500)
    ).recipe.timestep_sampling
    t = (1000 * sample_timesteps(noise, 20_000, torch.Generator().manual_seed(0), zimage, 16)[0]).round().long()
    assert (t.min().item(), t.max().item()) == (lowest, 1000)  # index 500 is the time 500 of 1000
    noise = run_with(
        content_or_style=favour, timestep_type="linear", settings=written(train__min_denoising_steps=500)
    ).recipe.timestep_sampling
    t = (1000 * sample_timesteps(noise, 20_000, torch.Generator().manual_seed(0), zimage, 16)[0]).round().long()
    assert (t.min().item(), t.max().item()) == (2 if favour == "balanced" else 1, 500)


def test_only_weighted_weighs() -> None:
    value = timestep_weights("weighted")
    assert value.mean().item() == pytest.approx(1.0)
    assert int(value.argmax()) == 124
    assert value[[0, 400, 999]].tolist() == pytest.approx([0.906, 1.083, 0.447], abs=0.01)
    for scheme in SCHEMES:
        _, weight = sample_timesteps(
            run_with(timestep_type=scheme).recipe.timestep_sampling, 50, torch.Generator().manual_seed(0), zimage, 16
        )
        assert (len(set(weight.tolist())) > 1) == (scheme == "weighted")


def test_bells() -> None:
    bell, half = timestep_weights("bell"), timestep_weights("half bell")
    place = [(math.exp(-2 * ((i - 500) / 1000) ** 2)) for i in range(1000)]
    mean = sum(place) / 1000 - min(place)
    expected = [(value - min(place)) / mean for value in place]
    assert bell.tolist() == pytest.approx(expected, abs=1e-4)
    assert half.tolist() == pytest.approx(expected[:500] + [max(expected)] * 500, abs=1e-4)


@pytest.mark.parametrize(
    ("settings", "scheme", "expected"),
    [
        ({}, "sigmoid", ("sigmoid", "none")),
        ({"train__linear_timesteps": True}, "sigmoid", ("linear", "bell")),
        ({"train__linear_timesteps2": True}, "shift", ("linear", "half bell")),
        ({"train__linear_timesteps": True}, "weighted", ("linear", "weighted")),
        ({"train__linear_timesteps": True}, "four_step", ("four_step", "bell")),
    ],
)
def test_old_names_of_linear_schemes(settings: dict[str, Any], scheme: str, expected: tuple[str, str]) -> None:
    sampling = run_with(timestep_type=scheme, settings=written(**settings)).recipe.timestep_sampling
    assert scheme_and_weighting(sampling) == expected


def test_losses() -> None:
    assert set(LOSSES) == set(names.LOSSES)
    miss, no = torch.linspace(-1, 1, 9), torch.zeros(())
    assert torch.equal(LOSSES["mse"](miss, no), torch.nn.functional.mse_loss(miss, miss * 0, reduction="none"))
    assert torch.equal(LOSSES["mae"](miss, no), torch.nn.functional.l1_loss(miss, miss * 0, reduction="none"))
    assert LOSSES["pseudo_huber"](miss, no).tolist() == pytest.approx(
        [(x * x + 1e-4) ** 0.5 - 0.01 for x in miss.tolist()]
    )
