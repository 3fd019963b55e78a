"""The VAE is loaded onto the device, or onto the CPU where the device has no room."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ..runtime.allocator import empty_device_cache
from ..runtime.gpu_failures import unless_out_of_memory
from ..runtime.train_error import TrainError
from .component_files import component_config
from .pretrained import load_file, load_pretrained


def load_vae(place: Path, device: torch.device) -> Any:
    """Returns the AutoencoderKL in float32, on the CPU where `device` has no room. Raises TrainError."""
    from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL

    if place.is_file():
        return on_device_or_cpu(load_file(AutoencoderKL, place, torch.float32), device)
    return on_device_or_cpu(load_pretrained(AutoencoderKL, place, "VAE", torch_dtype=torch.float32), device)


def on_device_or_cpu(model: Any, device: torch.device) -> Any:
    """Moves the model to the device; where that has no room, to the CPU."""
    if unless_out_of_memory(lambda: model.to(device)) is None:
        model.cpu()
        empty_device_cache()
    return model


def vae_divisor(place: Path) -> int:
    """Returns what the sides of an image must be divisible by: the VAE's shrink times the patch of 2."""
    try:
        return int(2 * 2 ** (len(component_config(place, "AutoencoderKL")["block_out_channels"]) - 1))
    except (KeyError, TypeError) as error:
        raise TrainError(f"{place / 'config.json'} has no block_out_channels.") from error
