"""Timesteps may be drawn from a density instead of a table, as kohya's trainers and SimpleTuner do."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ...model.recipe import TimestepDensity

# Of a scheduler's table; and how often a number is drawn again that lies outside the range.
COUNT = 1000


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
    shift = how.shift if isinstance(how.shift, int | float) else _of_size(how.shift, cells)
    return shift * t / (1.0 + (shift - 1.0) * t)


def _of_size(points: tuple[float, float, float, float], cells: int) -> float:
    few, low, many, high = points
    return math.exp(low + (high - low) * (cells - few) / (many - few))
