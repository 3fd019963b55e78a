"""FLUX.2 dev: Klein's transformer in large, told its guidance, and with Mistral's states."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...families.models.flux2_in_diffusers import DEV
from ...families.record import Family
from ..components.pretrained import load_tokenizer
from ..components.text_encoder import load_text_encoder
from ..kernels.quantized_linear import Quantization
from . import flux2

RECORD: Family = DEV
MODULE: str = flux2.MODULE
TEXT_PARTS: Mapping[str, str] = {"text_encoder": "Mistral3ForConditionalGeneration", "tokenizer": ""}
channels = flux2.channels
mu = flux2.mu
predict = flux2.predict
shifted_times = flux2.shifted_times
RESCALES: bool = flux2.RESCALES

# What the pipeline has a conversation begin with.
SYSTEM = (
    "You are an AI that reasons about image descriptions. You give structured responses focusing on object "
    "relationships, object\nattribution and actions without speculation."
)
# Of Mistral's hidden states these are put one beside the other.
LAYERS = (10, 20, 30)


def text_encoder(
    folders: Mapping[str, Path], kind: Quantization, dtype: torch.dtype, device: torch.device, *, masked: bool = False
) -> Callable[[str], dict[str, Tensor]]:
    """Mistral with its chat template; `states` are 512 x three times its width, whatever the prompt's length.

    What fills a prompt up is part of what the transformer was made with, so none is `masked`.
    """
    from transformers.models.mistral3.modeling_mistral3 import Mistral3ForConditionalGeneration as Make

    tokenizer = load_tokenizer(folders["tokenizer"])
    whole: Any = load_text_encoder(Make, folders["text_encoder"], "text encoder", kind, dtype, device)
    model = whole.model  # what predicts the next word is not asked

    @torch.no_grad()
    def encode(text: str) -> dict[str, Tensor]:
        turns = (("system", SYSTEM), ("user", text.replace("[IMG]", "")))  # which would stand for an image
        prompt = tokenizer.apply_chat_template(
            [{"role": role, "content": [{"type": "text", "text": words}]} for role, words in turns], tokenize=False
        )
        begun = tokenizer.bos_token is not None and prompt.startswith(tokenizer.bos_token)
        given = tokenizer(
            prompt,
            add_special_tokens=not begun,
            padding="max_length",
            truncation=True,
            max_length=flux2.PROMPT,
            return_tensors="pt",
        )
        return flux2.stacked_states(model, given, LAYERS)

    return encode
