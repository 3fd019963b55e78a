"""Timestep sampling chooses the noise levels that a step trains on, and how much each counts.

A table of 1000 times (1000 = pure noise) is drawn or computed in descending order; each sample picks an index. t is
the share of noise: x_t = (1 - t) * latent + t * noise.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor

from ...model.objective import TimestepDensity, TimestepSampling
from ..families import FamilyModule, FlowModule
from ..settings.names import SHIFTS

# Of a scheduler's table; and how often a number is drawn again that lies outside the range.
COUNT = 1000
# The width of the log-normal part of lognorm_blend.
BLEND_WIDTH = 0.333
FEW_STEPS = {
    "one_step": (0,),
    "two_step": (0, 499),
    "four_step": (0, 250, 500, 750),
    "eight_step": (0, 125, 250, 375, 500, 625, 750, 875),
}

# How hard each noise level is for a flow-matching model (loss weight by table index, mean 1), between these by line.
HARDNESS = (
    (0, 0.906),
    (12, 1.093),
    (30, 1.256),
    (60, 1.413),
    (90, 1.495),
    (124, 1.523),
    (160, 1.498),
    (220, 1.408),
    (300, 1.264),
    (400, 1.083),
    (500, 0.925),
    (600, 0.805),
    (700, 0.731),
    (800, 0.716),
    (870, 0.733),
    (930, 0.652),
    (970, 0.510),
    (999, 0.447),
)


def timestep_table(scheme: str, generator: torch.Generator, family: FamilyModule, cells: int) -> Tensor:
    """Returns the table of 1000 timesteps in [0, 1], descending, for latents of so many 2 x 2 cells."""
    if scheme == "sigmoid":
        return (1.0 - torch.sigmoid(torch.randn(COUNT, generator=generator))).sort(descending=True).values
    if scheme == "lognorm_blend":
        normal = torch.randn(COUNT * 3 // 4, generator=generator)
        early = torch.exp(BLEND_WIDTH * normal)
        blend = torch.cat([1.0 - early / early.max(), torch.linspace(1.0, 1.0 / COUNT, COUNT // 4)])
        return (blend.sort(descending=True).values * COUNT).floor() / COUNT
    if scheme in SHIFTS:
        return cast(FlowModule, family).shifted_times(COUNT, cells)
    return torch.linspace(1.0, 1.0 / COUNT, COUNT)


def scheme_and_weighting(sampling: TimestepSampling) -> tuple[str, str]:
    """Returns which table is drawn from, and how the losses are weighted by its indices."""
    bell = "half bell" if sampling.half_bell else "bell" if sampling.bell else "none"
    scheme = sampling.type if bell == "none" or sampling.type in FEW_STEPS else "linear"
    return scheme, "weighted" if sampling.type == "weighted" else bell


def sample_timesteps(
    sampling: TimestepSampling, size: int, generator: torch.Generator, family: FamilyModule, cells: int
) -> tuple[Tensor, Tensor]:
    """Draws (t, weight) of `size` samples of so many 2 x 2 cells: t in [0, 1], and the loss weight of each.

    "balanced" picks evenly, "content" prefers high noise (composition), "style" low noise (texture). A scheme of a
    few steps picks only where a sampler of so many steps would begin them.
    """
    if sampling.density is not None:
        return timesteps_from_density(sampling.density, size, generator, cells), torch.ones(size)
    scheme, weighting = scheme_and_weighting(sampling)
    few, first, last = FEW_STEPS.get(scheme), sampling.first, sampling.last
    if family.RECORD.diffuses:  # the table of its betas, of which ai-toolkit leaves out the ends
        weighting = "none"
        table = torch.arange(COUNT - 1, -1, -1, dtype=torch.float64) / COUNT
        first, last = (first + 1, last - 1) if sampling.content_or_style == "balanced" else (first, last)
    else:
        table = timestep_table(scheme, generator, family, cells)
    if few is not None:
        index = torch.tensor(few)[torch.randint(0, len(few), (size,), generator=generator)]
    elif sampling.content_or_style == "balanced":
        index = torch.randint(first, max(last, first + 1), (size,), generator=generator)
    else:
        cubed = torch.rand(size, generator=generator) ** 3
        share = cubed if sampling.content_or_style == "content" else 1.0 - cubed
        index = (share * COUNT * (last - first) / (COUNT - 1) + first).long().clamp_(first, last)
    return table[index], timestep_weights(weighting)[index]


def timestep_weights(weighting: str) -> Tensor:
    """Returns the loss weight of each table index, mean 1; half a bell keeps the weights of a whole one."""
    if weighting == "none":
        return torch.ones(COUNT)
    if weighting == "weighted":
        value = torch.empty(COUNT)
        for (start, low), (stop, high) in pairwise(HARDNESS):
            value[start : stop + 1] = torch.linspace(low, high, stop - start + 1)
        return value / value.mean()
    place = torch.arange(COUNT) / COUNT - 0.5
    bell = torch.exp(-2.0 * place.square())
    bell = (bell - bell.min()) / (bell - bell.min()).mean()
    if weighting == "half bell":
        bell[COUNT // 2 :] = bell.max()
    return bell


def timesteps_from_density(how: TimestepDensity, size: int, generator: torch.Generator, cells: int) -> Tensor:
    """Draws `size` timesteps for latents of so many 2 x 2 cells."""
    t = _once(how, size, generator, cells)
    if how.stepped:
        return t
    if not how.cut:
        return how.low + (how.high - how.low) * t
    for _ in range(COUNT):
        outside = (t < how.low) | (t > how.high)
        if not outside.any():
            break
        t[outside] = _once(how, size, generator, cells)[outside]
    return t.clamp(how.low, how.high)


def _once(how: TimestepDensity, size: int, generator: torch.Generator, cells: int) -> Tensor:
    if how.density == "logit_normal":
        t = torch.sigmoid(how.mean + how.spread * torch.randn(size, generator=generator))
    else:
        t = torch.rand(size, generator=generator)
    if how.density == "mode":
        t = 1.0 - t - how.mode * (torch.cos(math.pi * t / 2) ** 2 - 1.0 + t)
    if how.stepped:
        place = ((how.low + (how.high - how.low) * t) * COUNT).floor().clamp(0, COUNT - 1)
        t = 1.0 - place / COUNT
    shift = how.shift
    if isinstance(shift, tuple):
        few, low, many, high = shift
        shift = math.exp(low + (high - low) * (cells - few) / (many - few))
    t = shift * t / (1.0 + (shift - 1.0) * t)
    return torch.where(t < 0.5, t.square(), 1.0 - (1.0 - t).square()) if how.bent else t
