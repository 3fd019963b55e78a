"""The VAE turns pictures into the latents that the transformer takes, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..runtime.allocator import empty_device_cache
from ..runtime.gpu_failures import unless_out_of_memory
from ..runtime.train_error import TrainError
from .component_files import component_config
from .pretrained import load_file, load_pretrained
from .vae_strips import LARGE, in_strips

# The key whose list has a number for each stage of the class; all stages but the first halve the sides.
STAGES = {
    **dict.fromkeys(("AutoencoderKL", "AutoencoderKLFlux2"), "block_out_channels"),
    "AutoencoderKLQwenImage": "dim_mult",
}


@dataclass(frozen=True)
class VaeFiles:
    """Where a VAE lies, in a folder or a single file, and its class in diffusers.

    `factors` are the numbers that its latents are scaled by where the tensors of a file do not tell them.
    """

    place: Path
    class_name: str
    factors: Mapping[str, Any] = field(default_factory=dict)

    @property
    def shrink(self) -> int:
        """Pixels per latent cell. Raises TrainError."""
        key = STAGES[self.class_name]
        try:
            return int(2 ** (len(component_config(self.place, self.class_name)[key]) - 1))
        except (KeyError, TypeError) as error:
            raise TrainError(f"{self.place / 'config.json'} has no {key}.") from error

    def load(self, device: torch.device) -> Vae:
        """Returns the VAE in float32, on the CPU where `device` has no room. Raises TrainError."""
        make = getattr(import_module("diffusers"), self.class_name)
        if self.place.is_file():
            model = load_file(make, self.place, torch.float32, self.factors)
        else:
            model = load_pretrained(make, self.place, "VAE", torch_dtype=torch.float32)
        vae = Vae(model, self.shrink)
        vae.to(device)
        return vae


@dataclass(frozen=True)
class Vae:
    """A VAE in memory. One that was made for video sees a picture as a film of one frame.

    Latents are scaled as the transformer takes them: by one number, channel by channel, or by the place in a cell of
    2 x 2, too.
    """

    model: Any
    shrink: int

    @property
    def device(self) -> torch.device:
        return torch.device(next(self.model.parameters()).device)

    def to(self, device: torch.device) -> None:
        """Moves it to the device; where that has no room, to the CPU."""
        if unless_out_of_memory(lambda: self.model.to(device)) is None:
            self.model.cpu()
            empty_device_cache()

    def encode(self, pixels: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Returns the latent of pixels b x 3 x h x w from -1 to 1, b x channels x h/shrink x w/shrink, float32.

        It is a sample of the VAE's distribution that `generator` draws, on the CPU; without, its mean.
        """
        pixels = pixels.to(self.device, self.model.dtype)
        if self._frames:
            moments = self.model.encode(pixels.unsqueeze(2)).latent_dist
            mean, std = moments.mean.squeeze(2), moments.std.squeeze(2)
        else:
            with in_strips(self.model.encoder, pixels.shape[-2:].numel() > LARGE):
                moments = self.model.encode(pixels).latent_dist
            mean, std = moments.mean, moments.std
        latent: Tensor = mean.float()
        if generator is not None:
            latent = latent + std.float() * torch.randn(mean.shape, generator=generator).to(self.device)
        middle, factor = self._scale(latent)
        latent = (latent - middle) * factor
        return latent

    def decode(self, latent: Tensor) -> Tensor:
        """Returns the pixels of latents b x channels x h x w: b x 3 x shrink h x shrink w from -1 to 1, float32."""
        middle, factor = self._scale(latent)
        latent = (latent.to(self.device) / factor + middle).to(self.model.dtype)
        if self._frames:
            pixels: Tensor = self.model.decode(latent.unsqueeze(2), return_dict=False)[0].squeeze(2)
        else:
            area = latent.shape[-2:].numel() * self.shrink**2
            with in_strips(self.model.decoder, self.device.type == "cuda" or area > LARGE):
                pixels = self.model.decode(latent, return_dict=False)[0]
        return pixels.float()

    @property
    def _frames(self) -> bool:
        return "temperal_downsample" in self.model.config

    def _scale(self, latent: Tensor) -> tuple[Any, Any]:
        """What is taken off a latent of this size, and what it is multiplied by then."""
        config = self.model.config
        if (norm := getattr(self.model, "bn", None)) is not None:
            height, width = latent.shape[-2:]
            cells = (
                numbers.view(1, -1, 2, 2).repeat(1, 1, height // 2, width // 2)
                for numbers in (norm.running_mean, norm.running_var)
            )
            means, variances = cells
            return means, (variances + config.batch_norm_eps).rsqrt()
        if not self._frames:
            return config.shift_factor or 0.0, config.scaling_factor
        means, spreads = (
            torch.tensor(numbers, device=self.device).view(1, -1, 1, 1)
            for numbers in (config.latents_mean, config.latents_std)
        )
        return means, 1.0 / spreads
