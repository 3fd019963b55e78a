"""The VAE by its place, on the device or, where that has no room, on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ..runtime.allocator import free_memory
from ..runtime.gpu_failures import tried
from ..runtime.train_error import TrainError
from .component_files import config_of
from .pretrained import load_file, load_pretrained


def load_vae(place: Path, device: torch.device) -> Any:
    """The AutoencoderKL of a folder or file in float32; on the CPU where `device` has no room. Raises TrainError."""
    from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL

    if place.is_file():
        return moved(load_file(AutoencoderKL, place, torch.float32), device)
    return moved(load_pretrained(AutoencoderKL, place, "VAE", torch_dtype=torch.float32), device)


def moved(model: Any, device: torch.device) -> Any:
    """The model on the device; on the CPU where that has no room for it."""
    if tried(lambda: model.to(device)) is None:
        model.cpu()
        free_memory()
    return model


def vae_divisor(place: Path) -> int:
    """What the sides of a picture must be divisible by: the VAE's shrink times the transformer's patch of 2."""
    try:
        return int(2 * 2 ** (len(config_of(place, "AutoencoderKL")["block_out_channels"]) - 1))
    except (KeyError, TypeError) as error:
        raise TrainError(f"{place / 'config.json'} has no block_out_channels.") from error
