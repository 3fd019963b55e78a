"""Qwen-Image-Edit: Qwen-Image with the picture that is edited behind its own cells, and seen by Qwen2.5-VL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...families.qwen_image.record import EDIT
from ...families.record import Family
from ..components.pretrained import load_tokenizer, quiet
from ..components.text_encoder import load_text_encoder
from ..kernels.quantized_linear import Quantization
from . import qwen_image

if TYPE_CHECKING:
    from PIL.Image import Image

RECORD: Family = EDIT
MODULE: str = qwen_image.MODULE
TEXT_PARTS: Mapping[str, str] = {"text_encoder": "Qwen2_5_VLForConditionalGeneration", "tokenizer": ""}
channels = qwen_image.channels
mu = qwen_image.mu
predict = qwen_image.predict
shifted_times = qwen_image.shifted_times
RESCALES: bool = qwen_image.RESCALES

# What the pipelines write around a prompt; the states of what stands before the user's turn are cut off.
TEMPLATE = (
    "<|im_start|>system\nDescribe the key features of the input image (color, shape, size, texture, objects, "
    "background), then explain how the user's text instruction should alter or modify the image. Generate a new "
    "image that meets the user's requirements while maintaining consistency with the original input where "
    "appropriate.<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
)
BEFORE = 64
PAD = "<|image_pad|>"
TOKENS = {"image_token_id": PAD, "vision_start_token_id": "<|vision_start|>"}
PICTURE = f"<|vision_start|>{PAD}<|vision_end|>"


def text_encoder(
    folders: Mapping[str, Path], kind: Quantization, dtype: torch.dtype, device: torch.device, *, masked: bool = False
) -> Callable[[str, Sequence[Image]], dict[str, Tensor]]:
    """All of Qwen2.5-VL; `states` are tokens x width, those of the image first. None is `masked`."""
    return seeing(folders, kind, dtype, device, lambda number: PICTURE)


def image_processor() -> Any:
    """What makes patches of images, with the limits of pixels that Qwen2.5-VL is published with."""
    with quiet():  # that torchvision would be quicker
        from transformers import Qwen2VLImageProcessor

        make: Any = Qwen2VLImageProcessor
        return make(size={"shortest_edge": 3136, "longest_edge": 12845056})


def seeing(
    folders: Mapping[str, Path],
    kind: Quantization,
    dtype: torch.dtype,
    device: torch.device,
    shown: Callable[[int], str],
) -> Callable[[str, Sequence[Image]], dict[str, Tensor]]:
    """The text encoder of both kinds: `shown` is what stands for the image of a number, from 1, before the prompt."""
    from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLForConditionalGeneration as Make

    tokenizer, eyes = load_tokenizer(folders["tokenizer"]), image_processor()
    whole: Any = load_text_encoder(Make, folders["text_encoder"], "text encoder", kind, dtype, device)
    model = whole.model  # what predicts the next word is not asked
    for key, word in TOKENS.items():  # the config of a file has those that are published
        setattr(model.config, key, tokenizer.convert_tokens_to_ids(word))

    @torch.no_grad()
    def encode(text: str, images: Sequence[Image]) -> dict[str, Tensor]:
        given = eyes(images=list(images), return_tensors="pt")
        prompt = "".join(shown(number) for number in range(1, len(images) + 1)) + text
        for cells in given["image_grid_thw"].prod(dim=1) // eyes.merge_size**2:
            prompt = prompt.replace(PAD, "\0" * int(cells), 1)
        ids = tokenizer(TEMPLATE.format(prompt.replace("\0", PAD)), return_tensors="pt").input_ids.to(device)
        states = model(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            pixel_values=given["pixel_values"].to(device),
            image_grid_thw=given["image_grid_thw"].to(device),
            use_cache=False,
        ).last_hidden_state
        return {"states": states[0, BEFORE:].cpu()}

    return encode
