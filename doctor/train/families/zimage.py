"""Z-Image: a single-stream transformer that reads Qwen3's states."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...families.record import Family
from ...families.zimage.record import ZIMAGE
from ..components.pretrained import load_tokenizer
from ..components.text_encoder import load_text_encoder
from ..kernels.quantized_linear import Quantization
from ..runtime.transfer import to_device
from . import mu_of_cells, plain_channels

RECORD: Family = ZIMAGE
MODULE: str = "diffusers.models.transformers.transformer_z_image"
TEXT_PARTS: Mapping[str, str] = {"text_encoder": "Qwen3Model", "tokenizer": ""}
RESCALES: bool = False
channels = plain_channels
mu = mu_of_cells

LONGEST_PROMPT = 512
SHIFT = 3.0


def text_encoder(
    folders: Mapping[str, Path], kind: Quantization, dtype: torch.dtype, device: torch.device, *, masked: bool = False
) -> Callable[[str], dict[str, Tensor]]:
    """Qwen3 with its chat template; `states` are tokens x width. Nothing fills a prompt up, so none is `masked`."""
    from transformers.models.qwen3.modeling_qwen3 import Qwen3Model

    tokenizer = load_tokenizer(folders["tokenizer"])
    model: Any = load_text_encoder(Qwen3Model, folders["text_encoder"], "text encoder", kind, dtype, device)
    return lambda text: {"states": encode(tokenizer, model, text, device)}


@torch.no_grad()
def encode(tokenizer: Any, encoder: Any, text: str, device: torch.device) -> Tensor:
    """The embedding of one prompt: Qwen3's last hidden state but one, tokens x width.

    The pipeline pads to 512 tokens and cuts the padding off again; no token sees what comes after it, so the prompt
    is encoded alone, which gives the same numbers for less work.
    """
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True, enable_thinking=True
    )
    ids = tokenizer(prompt, truncation=True, max_length=LONGEST_PROMPT, return_tensors="pt").input_ids.to(device)
    states = encoder(input_ids=ids, output_hidden_states=True, use_cache=False).hidden_states
    value: Tensor = states[-2][0]
    return value.cpu()


def predict(
    model: nn.Module,
    noisy: Tensor,
    t: Tensor,
    texts: Sequence[Mapping[str, Tensor]],
    guidance: float = 1.0,
    controls: Sequence[Tensor] = (),
) -> Tensor:
    """The model takes the share of what is no noise, a frame axis, and gives the way from noise to latent."""
    states = [to_device(text["states"], noisy.device, noisy.dtype) for text in texts]
    images = list(noisy.unsqueeze(2).unbind(0))
    output = model(images, to_device(1.0 - t, noisy.device, torch.float32), states, return_dict=False)[0]
    return -torch.stack([value.float() for value in output]).squeeze(2)


def shifted_times(count: int, cells: int) -> Tensor:
    """A scheduler's table begins with shifted times; ai-toolkit shifts these once more."""
    return _shifted(torch.linspace(1.0, _shifted(torch.tensor(1.0 / count)).item(), count))


def _shifted(t: Tensor) -> Tensor:
    return SHIFT * t / (1.0 + (SHIFT - 1.0) * t)
