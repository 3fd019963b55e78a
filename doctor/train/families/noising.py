"""Noise schedules and what is predicted: flow matching, and diffusion by a table of betas (DDPM: epsilon or v).

A time t in [0, 1] says how much noise there is; of diffusion it is the timestep in thousandths.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from ...families.record import Family
from ...model.objective import Loss

STEPS = 1000


class Noising(Protocol):
    """How noise is mixed into latents, and what of it the model predicts; all b x c x h x w, times b."""

    def noisy(self, clean: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        """The latents with as much noise as the times say."""
        ...

    def target(self, clean: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        """What the model is to answer."""
        ...

    def on_table(self, t: Tensor) -> Tensor:
        """The times that the model knows, the next ones below where it knows only some."""
        ...

    def weights(self, loss: Loss, t: Tensor) -> Tensor:
        """What the loss of each sample counts for its ratio of signal to noise, b."""
        ...


@dataclass(frozen=True)
class FlowMatching:
    """The model predicts the way from latent to noise."""

    def noisy(self, clean: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        share = t.view(-1, 1, 1, 1)
        return (1.0 - share) * clean + share * noise

    def target(self, clean: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        return noise - clean

    def on_table(self, t: Tensor) -> Tensor:
        return t

    def weights(self, loss: Loss, t: Tensor) -> Tensor:
        return torch.ones_like(t)


@dataclass(frozen=True)
class Diffusion:
    """The model predicts the noise or, with `velocity`, v; `signal` is the share of signal's variance by timestep."""

    signal: Tensor
    velocity: bool = False

    def noisy(self, clean: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        of_signal, of_noise = self._shares(t)
        return of_signal * clean + of_noise * noise

    def target(self, clean: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        if not self.velocity:
            return noise
        of_signal, of_noise = self._shares(t)
        return of_signal * noise - of_noise * clean

    def on_table(self, t: Tensor) -> Tensor:
        return (t.double() * STEPS).floor().clamp(0, STEPS - 1) / STEPS

    def weights(self, loss: Loss, t: Tensor) -> Tensor:
        """As apply_snr_weight of ai-toolkit and of sd-scripts computes them, which are one but for v."""
        ratio = self._ratio(t)
        if loss.snr_gamma:
            return loss.snr_gamma / ratio
        if not loss.min_snr_gamma:
            return torch.ones_like(ratio)
        bound = ratio.clamp(max=loss.min_snr_gamma)
        return bound / (ratio + 1.0 if self.velocity else ratio.clamp(min=1e-12))

    def _ratio(self, t: Tensor) -> Tensor:
        """Signal to noise."""
        signal = self.signal[timesteps(t).long()]
        return signal / (1.0 - signal)

    def _shares(self, t: Tensor) -> tuple[Tensor, Tensor]:
        signal = self.signal[timesteps(t).long()].view(-1, 1, 1, 1)
        return signal.sqrt(), (1.0 - signal).sqrt()


def timesteps(t: Tensor) -> Tensor:
    """The timesteps of times, float32; what is whole is whole to the bit."""
    return (t.double() * STEPS).float()


def noising_of(family: Family, scheduler: Mapping[str, Any]) -> Noising:
    """What the model was made with, by its scheduler's config (`scheduler_config`)."""
    if not family.diffuses:
        return FlowMatching()
    from diffusers.schedulers.scheduling_ddpm import DDPMScheduler

    make: Any = DDPMScheduler
    made = make.from_config(scheduler)
    return Diffusion(made.alphas_cumprod, made.config.prediction_type == "v_prediction")
