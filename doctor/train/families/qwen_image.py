"""Qwen-Image: a stream of Qwen2.5-VL's states beside one of picture cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from ...families.qwen_image.record import QWEN_IMAGE
from ...families.record import Family
from ..components.pretrained import load_tokenizer
from ..components.text_encoder import load_text_encoder
from ..kernels.quantized_linear import Quantization
from ..runtime.transfer import to_device
from . import mu_of_cells, packed, packed_channels, shifted_by_size, unpacked

RECORD: Family = QWEN_IMAGE
MODULE: str = "diffusers.models.transformers.transformer_qwenimage"
TEXT_PARTS: Mapping[str, str] = {"text_encoder": "Qwen2_5_VLTextModel", "tokenizer": ""}
channels = packed_channels
mu = mu_of_cells
RESCALES: bool = True

LONGEST_PROMPT = 1024
# What the pipeline writes around a prompt; the states of what stands before the prompt are cut off.
TEMPLATE = (
    "<|im_start|>system\nDescribe the image by detailing the color, shape, size, texture, quantity, text, spatial "
    "relationships of the objects and background:<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
)
BEFORE = 34


def text_encoder(
    folders: Mapping[str, Path], kind: Quantization, dtype: torch.dtype, device: torch.device, *, masked: bool = False
) -> Callable[[str], dict[str, Tensor]]:
    """The language model of Qwen2.5-VL, without what sees; `states` are tokens x width.

    Nothing fills a prompt up, so none is `masked`.
    """
    from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLTextModel

    tokenizer = load_tokenizer(folders["tokenizer"])
    model: Any = load_text_encoder(Qwen2_5_VLTextModel, folders["text_encoder"], "text encoder", kind, dtype, device)

    @torch.no_grad()
    def encode(text: str) -> dict[str, Tensor]:
        ids = tokenizer(
            TEMPLATE.format(text), truncation=True, max_length=LONGEST_PROMPT + BEFORE, return_tensors="pt"
        ).input_ids
        states = model(input_ids=ids.to(device), use_cache=False).last_hidden_state
        return {"states": states[0, BEFORE:].cpu()}

    return encode


def predict(
    model: nn.Module,
    noisy: Tensor,
    t: Tensor,
    texts: Sequence[Mapping[str, Tensor]],
    guidance: float = 1.0,
    controls: Sequence[Tensor] = (),
) -> Tensor:
    """The model gives the way from latent to noise; of prompts of unlike lengths it is told where each ends.

    The cells of control images follow those of the picture, each image with a shape of its own.
    """
    height, width = noisy.shape[2:]
    shapes = [(1, one.shape[2] // 2, one.shape[3] // 2) for one in (noisy, *controls)]
    states = [text["states"] for text in texts]
    lengths = torch.tensor([len(one) for one in states])
    kept = torch.arange(int(lengths.max())) < lengths[:, None]
    output = model(
        hidden_states=torch.cat(
            [packed(to_device(one, noisy.device, noisy.dtype)) for one in (noisy, *controls)], dim=1
        ),
        encoder_hidden_states=to_device(pad_sequence(states, batch_first=True), noisy.device, noisy.dtype),
        encoder_hidden_states_mask=None if kept.all() else to_device(kept, noisy.device),
        timestep=to_device(t, noisy.device, torch.float32),
        img_shapes=[shapes] * len(texts),
        return_dict=False,
    )[0]
    return unpacked(output[:, : height * width // 4].float(), height, width)


def shifted_times(count: int, cells: int) -> Tensor:
    """Shifted by the picture's size, and stretched to its end, as the scheduler does."""
    scheduler = RECORD.scheduler({})
    rest = 1.0 - shifted_by_size(cells, count, scheduler)
    last: float = scheduler["shift_terminal"]
    return 1.0 - rest * ((1.0 - last) / rest[-1])
