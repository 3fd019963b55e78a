"""Timestep sampling chooses the noise levels that a step trains on, and how much each counts.

A table of 1000 times (1000 = pure noise) is drawn or computed in descending order; each sample picks an index. t is
the share of noise: x_t = (1 - t) * latent + t * noise.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from ...model.recipe import TimestepDensity
from ...model.run import Run
from ..families import FamilyModule
from ..settings.names import DRAWN, SHIFTS
from .timestep_density import timesteps_from_density

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
        return family.shifted_times(COUNT, cells)
    return torch.linspace(1.0, 1.0 / COUNT, COUNT)


class TimestepScheme(NamedTuple):
    """The scheme, what it favours, the range of the table's indices, and how losses are weighted."""

    scheme: str = "linear"
    favour: str = "balanced"
    weighting: str = "none"
    first: int = 0
    last: int = COUNT - 1
    drawn: TimestepDensity | None = None


def timestep_scheme(run: Run) -> TimestepScheme:
    """Returns the sampling that a config asks for."""
    sampling = run.recipe.timestep_sampling
    if sampling.density is not None:
        return TimestepScheme(scheme=DRAWN, drawn=sampling.density)
    belled = (sampling.bell or sampling.half_bell) and sampling.type not in FEW_STEPS
    weighting = "half bell" if sampling.half_bell else "bell" if sampling.bell else "none"
    return TimestepScheme(
        scheme="linear" if belled else sampling.type,
        favour=sampling.content_or_style,
        weighting="weighted" if sampling.type == "weighted" else weighting,
        first=sampling.first,
        last=sampling.last,
    )


def sample_timesteps(
    levels: TimestepScheme, size: int, generator: torch.Generator, family: FamilyModule, cells: int
) -> tuple[Tensor, Tensor]:
    """Draws (t, weight) of `size` samples of so many 2 x 2 cells: t in [0, 1], and the loss weight of each.

    favour "balanced" picks evenly, "content" prefers high noise (composition), "style" low noise (texture). A scheme
    of a few steps picks only where a sampler of so many steps would begin them.
    """
    scheme, favour, weighting, first, last, drawn = levels
    if drawn is not None:
        return timesteps_from_density(drawn, size, generator, cells), torch.ones(size)
    table = timestep_table(scheme, generator, family, cells)
    if scheme in FEW_STEPS:
        few = FEW_STEPS[scheme]
        index = torch.tensor(few)[torch.randint(0, len(few), (size,), generator=generator)]
    elif favour == "balanced":
        index = torch.randint(first, max(last, first + 1), (size,), generator=generator)
    else:
        cubed = torch.rand(size, generator=generator) ** 3
        share = cubed if favour == "content" else 1.0 - cubed
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
