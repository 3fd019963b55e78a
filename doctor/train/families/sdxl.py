"""SDXL: a UNet that reads the states of two CLIPs, and the pooled one of the second beside the picture's sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...families.models.stable_diffusion import SDXL
from ...families.record import Family
from ..components.pretrained import load_tokenizer
from ..components.text_encoder import load_text_encoder
from ..kernels.quantized_linear import Quantization
from ..runtime.transfer import to_device
from . import plain_channels, stacked
from .noising import timesteps

RECORD: Family = SDXL
MODULE: str = "diffusers.models.unets.unet_2d_condition"
TEXT_PARTS: Mapping[str, str] = {
    "text_encoder": "CLIPTextModel",
    "text_encoder_2": "CLIPTextModelWithProjection",
    "tokenizer": "",
    "tokenizer_2": "",
}
channels = plain_channels
RESCALES: bool = False

PROMPT = 77
# Pixels of a cell of the latents, in which the model is told sizes.
CELL = 8
# Of both encoders' hidden states the last but one is read.
LAYER = -2
# What fills a prompt up for the second.
FILLER = "!"


def text_encoder(
    folders: Mapping[str, Path], kind: Quantization, dtype: torch.dtype, device: torch.device, *, masked: bool = False
) -> Callable[[str], dict[str, Tensor]]:
    """Both CLIPs; `states` are 77 x the width of both, `pooled` is as wide as the second's projection.

    What fills a prompt up is part of what the UNet was made with, so none is `masked`.
    """
    from transformers.models.clip.modeling_clip import CLIPTextModel, CLIPTextModelWithProjection

    pairs: list[tuple[Any, Any]] = []
    for end, make in (("", CLIPTextModel), ("_2", CLIPTextModelWithProjection)):
        encoder = load_text_encoder(make, folders[f"text_encoder{end}"], "text encoder", kind, dtype, device)
        pairs.append((load_tokenizer(folders[f"tokenizer{end}"]), encoder))
    pairs[1][0].pad_token = FILLER  # whichever repository the tokenizer comes from

    @torch.no_grad()
    def encode(text: str) -> dict[str, Tensor]:
        answers: list[Any] = []
        for tokenizer, encoder in pairs:
            given = tokenizer(text, padding="max_length", truncation=True, max_length=PROMPT, return_tensors="pt")
            answers.append(encoder(given.input_ids.to(device), output_hidden_states=True))
        states = [answer.hidden_states[LAYER][0].cpu() for answer in answers]
        return {"states": torch.cat(states, dim=-1), "pooled": answers[-1].text_embeds[0].cpu()}

    return encode


def predict(
    model: nn.Module,
    noisy: Tensor,
    t: Tensor,
    texts: Sequence[Mapping[str, Tensor]],
    guidance: float = 1.0,
    controls: Sequence[Tensor] = (),
) -> Tensor:
    """A text may say `sizes`: height and width of the whole picture, where its crop begins, height and width of that.
    Without, they are those of a picture that was not cut, as ai-toolkit and diffusers' pipeline have it.
    """
    height, width = (CELL * side for side in noisy.shape[2:])
    plain = torch.tensor([height, width, 0, 0, height, width])
    states, pooled = (stacked(texts, name, noisy) for name in ("states", "pooled"))
    sizes = to_device(torch.stack([text.get("sizes", plain) for text in texts]), noisy.device)
    output: Tensor = model(
        noisy,
        to_device(timesteps(t), noisy.device),
        encoder_hidden_states=states,
        added_cond_kwargs={"text_embeds": pooled, "time_ids": sizes},
        return_dict=False,
    )[0]
    return output.float()
