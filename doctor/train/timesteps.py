"""Which noise levels a step trains on, and how much each counts.

A table of 1000 times (1000 = pure noise) is drawn or computed in descending order; each sample picks an index. t is
the share of noise: x_t = (1 - t) * latent + t * noise.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

COUNT = 1000
SHIFT = 3.0

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


def times(scheme: str, generator: torch.Generator) -> Tensor:
    """The table of 1000 times in (0, 1], descending."""
    if scheme == "sigmoid":
        return (1.0 - torch.sigmoid(torch.randn(COUNT, generator=generator))).sort(descending=True).values
    grid = torch.linspace(1.0, 1.0 / COUNT, COUNT)
    if scheme == "shift":
        return SHIFT * grid / (1.0 + (SHIFT - 1.0) * grid)
    return grid


def draw(scheme: str, favour: str, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """(t, weight) for `size` samples: t in (0, 1], the loss weight of each.

    favour "balanced" picks evenly, "content" prefers high noise (composition), "style" low noise (texture).
    """
    table = times(scheme, generator)
    if favour == "balanced":
        index = torch.randint(0, COUNT - 1, (size,), generator=generator)
    else:
        cubed = torch.rand(size, generator=generator) ** 3
        share = cubed if favour == "content" else 1.0 - cubed
        index = (share * COUNT).long().clamp_(0, COUNT - 2)
    return table[index], weights()[index] if scheme == "weighted" else torch.ones(size)


def weights() -> Tensor:
    """The loss weight of each table index for the "weighted" scheme, mean 1."""
    value = torch.empty(COUNT)
    for (start, low), (stop, high) in pairwise(HARDNESS):
        value[start : stop + 1] = torch.linspace(low, high, stop - start + 1)
    return value / value.mean()
