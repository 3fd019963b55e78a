"""Preview pictures: the Z-Image pipeline's own steps with the transformer as it is being trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..model.run import SamplePrompt
from .errors import TrainError


def make_scheduler(model_folder: Path | None) -> Any:
    """The flow-matching Euler scheduler of the model folder, else Z-Image's (1000 steps, shift 3)."""
    from diffusers.schedulers.scheduling_flow_match_euler_discrete import FlowMatchEulerDiscreteScheduler

    make: Any = FlowMatchEulerDiscreteScheduler
    if model_folder is not None and (model_folder / "scheduler" / "scheduler_config.json").is_file():
        return make.from_pretrained(str(model_folder), subfolder="scheduler")
    return make(num_train_timesteps=1000, shift=3.0, use_dynamic_shifting=False)


@torch.no_grad()
def denoise(
    model: nn.Module,
    scheduler: Any,
    prompt: SamplePrompt,
    positive: Tensor,
    negative: Tensor,
    *,
    shrink: int,
    channels: int,
    dtype: torch.dtype,
    device: torch.device,
    stop: Callable[[], bool] = lambda: False,
) -> Tensor | None:
    """The latent of one preview, 1 x channels x h x w float32; None when `stop` said so on the way.

    `shrink` is pixels per latent cell. Guidance counts as trainers write it: 1 means without; the picture is moved
    by guidance - 1 away from the negative prompt.
    """
    height, width = (2 * (side // (2 * shrink)) for side in (prompt.height, prompt.width))
    generator = torch.Generator().manual_seed(prompt.seed)
    latent = torch.randn((1, channels, height, width), generator=generator).to(device)
    push = prompt.guidance - 1.0
    texts = [positive.to(device, dtype)] + ([negative.to(device, dtype)] if push > 0 else [])
    steps = max(1, prompt.steps)
    sigmas = torch.linspace(1.0, 1.0 / steps, steps).tolist()
    scheduler.set_timesteps(sigmas=sigmas, device=device, mu=_shift(height, width))
    scheduler.set_begin_index(0)
    for time in scheduler.timesteps:
        if stop():
            return None
        moment = ((1000 - time) / 1000).expand(len(texts)).to(device)
        inputs = [latent[0].to(dtype).unsqueeze(1)] * len(texts)
        outputs = [value.float() for value in model(inputs, moment, texts, return_dict=False)[0]]
        guess = outputs[0] if len(outputs) == 1 else outputs[0] + push * (outputs[0] - outputs[1])
        latent = scheduler.step(-guess.squeeze(1).unsqueeze(0), time, latent, return_dict=False)[0]
    return latent


@torch.no_grad()
def decode(vae: Any, latent: Tensor, file: Path) -> None:
    """Turn a latent into a PNG file. Raises TrainError when it cannot be written."""
    from PIL import Image

    latent = latent.to(next(vae.parameters()).device, vae.dtype)
    latent = latent / vae.config.scaling_factor + (vae.config.shift_factor or 0.0)
    pixels = vae.decode(latent, return_dict=False)[0][0].float()
    pixels = torch.nan_to_num(pixels).div(2).add(0.5).clamp(0, 1).mul(255).round().to(torch.uint8)
    rows = pixels.permute(1, 2, 0).contiguous().cpu()
    image = Image.frombytes("RGB", (rows.shape[1], rows.shape[0]), rows.numpy().tobytes())
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        image.save(file)
    except OSError as error:
        raise TrainError(f"The preview {file} cannot be written: {error.strerror or error}.") from error


def _shift(height: int, width: int) -> float:
    """The dynamic shift for this size, used only by schedulers that ask for one."""
    length = (height // 2) * (width // 2)
    return 0.5 + (1.15 - 0.5) * (length - 256) / (4096 - 256)
