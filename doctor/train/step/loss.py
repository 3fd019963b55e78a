"""The loss compares a prediction with its target; settings choose the target and the weight of a difference."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ...model.objective import GuidanceTarget, Loss
from ...train.dataset.training_items import TrainingItem
from ..runtime.transfer import to_device

HUBER = 0.01
# What a difference between guess and target counts, by the name of the loss; the second is the threshold of some.
LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mse": lambda miss, _: miss.square(),
    "mae": lambda miss, _: miss.abs(),
    "pseudo_huber": lambda miss, _: (miss.square() + HUBER**2).sqrt() - HUBER,
    "huber": lambda miss, c: 2 * c * ((miss.square() + c**2).sqrt() - c),
    "smooth_l1": lambda miss, c: 2 * ((miss.square() + c**2).sqrt() - c),
}


def thresholds(loss: Loss, t: Tensor) -> Tensor:
    """Returns the threshold of Huber's losses at each noise level, b, as sd-scripts and SimpleTuner have it."""
    c = loss.threshold
    if loss.threshold_schedule == "exponential":
        found = torch.exp(math.log(c) * t)
    elif loss.threshold_schedule == "snr":  # SimpleTuner's for flow matching
        found = (1.0 - c) / (1.0 + ((1.0 - t) / (t + 1e-4)).sqrt()) ** 2 + c
    else:
        found = torch.full_like(t, c)
    return found * loss.threshold_scale


def guidance_scales(how: GuidanceTarget, size: int, generator: torch.Generator) -> Tensor:
    """Returns how far the target of each of `size` samples lies from the blank prompt's."""
    if how.low == how.high:
        return torch.full((size,), how.low)
    return how.low + (how.high - how.low) * torch.rand(size, generator=generator)


def guided_target(target: Tensor, blank: Tensor, scale: Tensor, t: Tensor, how: GuidanceTarget) -> Tensor:
    """Moves the target away from `blank`, the model's answer to the blank prompt; both b x c x h x w."""
    if how.zero:
        fit = (target * blank).sum(dim=(1, 2, 3), keepdim=True)
        blank = blank * (fit / (blank.square().sum(dim=(1, 2, 3), keepdim=True) + 1e-8))
    if how.fading:
        scale = 1.0 + (scale - 1.0) * t
    return blank + to_device(scale.view(-1, 1, 1, 1), target.device) * (target - blank)


def like(value: Tensor, other: Tensor) -> Tensor:
    """Returns `value` with the mean and deviation of `other`, each over all of the batch."""
    even = (value - value.mean()) / (value.std() + 1e-8)
    return even * other.std() + other.mean()


def sample_losses(loss: Loss, guess: Tensor, target: Tensor, mask: Tensor | None, t: Tensor) -> Tensor:
    """Returns the mean loss of each sample, b, at its noise level `t`; a mask (b x 1 x h x w) weighs it."""
    value = LOSSES[loss.type](guess - target, to_device(thresholds(loss, t).view(-1, 1, 1, 1), guess.device))
    return (value if mask is None else value * mask).mean(dim=(1, 2, 3))


def background_losses(loss: Loss, guess: Tensor, before: Tensor, mask: Tensor) -> Tensor:
    """Returns the mean loss of each sample outside the mask against the model's answer without the network."""
    rest = 1.0 - mask
    rest = rest / rest.mean().clamp_min(1e-6)
    change = guess - before
    value = change.abs() if loss.type == "mae" else change.square()
    return (value * rest).mean(dim=(1, 2, 3))


def preserved_prompt(loss: Loss, item: TrainingItem, caption: str) -> str | None:
    """Returns the prompt to which the model's answer stays as it was; None when nothing is preserved.

    That is `caption` with the class for the trigger word, or the empty prompt.
    """
    if loss.preservation is None:
        return None
    if (word := loss.preservation.word) is None:
        return ""
    return caption.replace(item.trigger, word) if item.trigger else caption
