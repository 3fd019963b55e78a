"""The sampler paints previews by the pipeline's own steps, with the transformer as it is being trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from ...model.recipe import SamplePrompt
from ..components.vae import Vae
from ..families import Embedding, FamilyModule, FlowModule, family_of, packed, unpacked
from ..runtime.allocator import empty_device_cache
from ..runtime.atomic_files import atomic_file
from ..runtime.gpu_failures import unless_out_of_memory
from ..runtime.transfer import to_device


@torch.no_grad()
def denoise(
    model: nn.Module,
    scheduler: Any,
    prompt: SamplePrompt,
    positive: Embedding,
    negative: Embedding,
    *,
    shrink: int,
    dtype: torch.dtype,
    device: torch.device,
    controls: Sequence[Tensor] = (),
    stop: Callable[[], bool] = lambda: False,
    told: Callable[[int], None] = lambda _: None,
) -> Tensor | None:
    """Returns the latent of one preview, 1 x channels x h x w float32; None when `stop` said so on the way.

    `shrink` is pixels per latent cell. Guidance counts as trainers write it: 1 means without; the picture is moved
    by guidance - 1 away from the negative prompt, but for models that take the guidance itself. `controls` are the
    latents of what is edited, 1 x channels x any size each. `told` is told of each step that begins, from 0.
    """
    family = family_of(model)
    height, width = (2 * (side // (2 * shrink)) for side in (prompt.height, prompt.width))
    generator = torch.Generator().manual_seed(prompt.seed)
    latent = to_device(torch.randn((1, family.channels(model), height, width), generator=generator), device)
    config: Any = model.config
    guided = family.RECORD.guided or config.get("guidance_embeds", False)  # of FLUX.2 dev is, Klein is not
    push = 0.0 if guided else max(0.0, prompt.guidance - 1.0)
    texts = [positive, negative] if push else [positive]
    latent = latent * _begin(family, scheduler, max(1, prompt.steps), height * width // 4)
    scaled = getattr(scheduler, "scale_model_input", lambda latent, _: latent)
    for number, time in enumerate(scheduler.timesteps):
        if stop():
            return None
        told(number)
        share = (time.double() / 1000).expand(len(texts))
        noisy = scaled(latent, time).to(dtype).expand(len(texts), -1, -1, -1)
        seen = [one.to(noisy).expand(len(texts), -1, -1, -1) for one in controls]
        guesses = family.predict(model, noisy, share, texts, prompt.guidance, seen)
        guess = _guided(family, guesses, push) if push else guesses
        latent = scheduler.step(guess, time, latent, return_dict=False)[0]
    return latent


def _begin(family: FamilyModule, scheduler: Any, steps: int, cells: int) -> float:
    """Sets the scheduler's steps; returns how strong the noise is that it begins with.

    Its times stay on the CPU: it looks for its place among them, which on a card would be waited for.
    """
    if family.RECORD.diffuses:
        scheduler.set_timesteps(steps)
        return float(scheduler.init_noise_sigma)
    sigmas = torch.linspace(1.0, 1.0 / steps, steps).tolist()
    mu = cast(FlowModule, family).mu(cells, steps, scheduler.config)
    scheduler.set_timesteps(sigmas=sigmas, mu=mu)
    scheduler.set_begin_index(0)
    return 1.0


def _guided(family: FamilyModule, guesses: Tensor, push: float) -> Tensor:
    """The guess for the prompt, moved away from that for the negative prompt."""
    guess = guesses[:1] + push * (guesses[:1] - guesses[1:])
    if not family.RESCALES:
        return guess
    before, after = packed(guesses[:1]), packed(guess)
    return unpacked(after * (before.norm(dim=-1, keepdim=True) / after.norm(dim=-1, keepdim=True)), *guess.shape[-2:])


@torch.no_grad()
def decode_to_png(vae: Vae, latent: Tensor, file: Path) -> None:
    """Turns a latent into a PNG file, whole or not at all. Raises TrainError when it cannot be written.

    Where a picture does not fit on the GPU in strips either, it and all after it are painted on the CPU.
    """
    from PIL import Image

    pixels = unless_out_of_memory(lambda: vae.decode(latent))
    if pixels is None:
        vae.to(torch.device("cpu"))
        empty_device_cache()
        pixels = vae.decode(latent)
    pixels = torch.nan_to_num(pixels[0]).div(2).add(0.5).clamp(0, 1).mul(255).round().to(torch.uint8)
    rows = pixels.permute(1, 2, 0).contiguous().cpu()
    image = Image.frombytes("RGB", (rows.shape[1], rows.shape[0]), rows.numpy().tobytes())
    with atomic_file(file, durable=False) as stream:
        image.save(stream, "PNG")
