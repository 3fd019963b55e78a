"""Chroma: a stream of T5's states and picture cells, as Flux.1, with nothing of CLIP and no guidance that is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...families.models.chroma import IN_DIFFUSERS
from ...families.record import Family
from ..components.pretrained import load_tokenizer
from ..components.text_encoder import load_text_encoder
from ..kernels.quantized_linear import Quantization
from ..runtime.transfer import to_device
from . import flux, mu_of_cells, packed, packed_channels, stacked, unpacked

RECORD: Family = IN_DIFFUSERS
MODULE: str = "diffusers.models.transformers.transformer_chroma"
TEXT_PARTS: Mapping[str, str] = {"text_encoder": "T5EncoderModel", "tokenizer": ""}
channels = packed_channels
mu = mu_of_cells
shifted_times = flux.shifted_times
RESCALES: bool = False


def text_encoder(
    folders: Mapping[str, Path], kind: Quantization, dtype: torch.dtype, device: torch.device, *, masked: bool = False
) -> Callable[[str], dict[str, Tensor]]:
    """T5; `states` are those of the prompt and of the first token that fills it up, tokens x width.

    The transformer was made to see that one, and no other of them. `masked`: T5 does not look at any of them.
    """
    from transformers.models.t5.modeling_t5 import T5EncoderModel

    tokenizer = load_tokenizer(folders["tokenizer"])
    model: Any = load_text_encoder(T5EncoderModel, folders["text_encoder"], "text encoder", kind, dtype, device)

    @torch.no_grad()
    def encode(text: str) -> dict[str, Tensor]:
        given = tokenizer(text, padding="max_length", truncation=True, max_length=flux.PROMPT, return_tensors="pt")
        mask = given.attention_mask.to(device) if masked else None
        states = model(given.input_ids.to(device), attention_mask=mask)[0]
        return {"states": states[0, : int(given.attention_mask.sum()) + 1].cpu()}

    return encode


def predict(
    model: nn.Module,
    noisy: Tensor,
    t: Tensor,
    texts: Sequence[Mapping[str, Tensor]],
    guidance: float = 1.0,
    controls: Sequence[Tensor] = (),
) -> Tensor:
    """Pictures with prompts of unlike lengths go through the model one by one, so that nothing is to be masked.

    diffusers' class (0.42.1) gives its single blocks no mask where they are computed again in backward.
    """
    if len({len(text["states"]) for text in texts}) > 1:
        alone = (predict(model, noisy[n : n + 1], t[n : n + 1], [text]) for n, text in enumerate(texts))
        return torch.cat(list(alone))
    height, width = noisy.shape[2:]
    states = stacked(texts, "states", noisy)
    output = model(
        hidden_states=packed(noisy),
        encoder_hidden_states=states,
        timestep=to_device(t, noisy.device, torch.float32),
        img_ids=to_device(flux.cell_ids(height, width, 0), noisy.device),
        txt_ids=torch.zeros(states.shape[1], 3, device=noisy.device),
        return_dict=False,
    )[0]
    return unpacked(output.float(), height, width)
