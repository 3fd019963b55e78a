"""The loss compares a prediction with its target; settings choose the target and the weight of a difference."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ...model.run import Run

HUBER = 0.01
# What a difference between guess and target counts, by the name of the loss.
LOSSES: dict[str, Callable[[Tensor], Tensor]] = {
    "mse": torch.square,
    "mae": torch.abs,
    "pseudo_huber": lambda miss: (miss.square() + HUBER**2).sqrt() - HUBER,
}


class GuidanceTarget(NamedTuple):
    """The target of a guidance loss lies `low` (to `high`, drawn for each sample) times as far from the blank
    prompt's.

    `zero` scales the blank prompt's answer to fit the target best, `fading` makes the guidance fall with the noise.
    """

    low: float
    high: float
    prompt: str
    zero: bool
    fading: bool

    def scales(self, size: int, generator: torch.Generator) -> Tensor:
        """Returns the scale of each of `size` samples."""
        if self.low == self.high:
            return torch.full((size,), self.low)
        return self.low + (self.high - self.low) * torch.rand(size, generator=generator)


def guidance_target(run: Run) -> GuidanceTarget | None:
    """Returns what `do_guidance_loss` and the keys beside it ask for."""
    if not run.setting("train/do_guidance_loss"):
        return None
    written = run.setting("train/guidance_loss_target", 3.0)
    low, high = (written[0], written[-1]) if isinstance(written, list | tuple) else (written, written)
    return GuidanceTarget(
        float(low),
        float(high),
        str(run.setting("train/unconditional_prompt", "")),
        bool(run.setting("train/do_guidance_loss_cfg_zero")),
        run.setting("train/guidance_loss_schedule", "constant") == "sigma",
    )


def guided_target(target: Tensor, blank: Tensor, scale: Tensor, t: Tensor, how: GuidanceTarget) -> Tensor:
    """Moves the target away from `blank`, the model's answer to the blank prompt; both b x c x h x w."""
    if how.zero:
        fit = (target * blank).sum(dim=(1, 2, 3), keepdim=True)
        blank = blank * (fit / (blank.square().sum(dim=(1, 2, 3), keepdim=True) + 1e-8))
    if how.fading:
        scale = 1.0 + (scale - 1.0) * t
    return blank + scale.view(-1, 1, 1, 1).to(target.device) * (target - blank)


def differential_guidance_scale(run: Run) -> float:
    """Returns how many times as far from the prediction the target is put; 1 where `do_differential_guidance`
    is off.
    """
    return (
        float(run.setting("train/differential_guidance_scale", 3.0))
        if run.setting("train/do_differential_guidance")
        else 1.0
    )


def sample_losses(run: Run, guess: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
    """Returns the mean loss of each sample, b; a mask (b x 1 x h x w) weighs it."""
    value = LOSSES[run.recipe.loss.type](guess - target)
    return (value if mask is None else value * mask).mean(dim=(1, 2, 3))


def background_weight(run: Run) -> float | None:
    """Returns how much an unchanged answer outside the mask counts (inverted_mask_prior), None where it does not."""
    if not run.setting("train/inverted_mask_prior"):
        return None
    return float(run.setting("train/inverted_mask_prior_multiplier", 0.5))


def background_losses(run: Run, guess: Tensor, before: Tensor, mask: Tensor) -> Tensor:
    """Returns the mean loss of each sample outside the mask against the model's answer without the network."""
    rest = 1.0 - mask
    rest = rest / rest.mean().clamp_min(1e-6)
    change = guess - before
    value = change.abs() if run.recipe.loss.type == "mae" else change.square()
    return (value * rest).mean(dim=(1, 2, 3))
