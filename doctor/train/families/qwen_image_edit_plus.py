"""Qwen-Image-Edit 2509 and 2511: several images, each numbered in the prompt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...families.qwen_image.record import EDIT_PLUS
from ...families.record import Family
from ..kernels.quantized_linear import Quantization
from . import qwen_image_edit as edit

if TYPE_CHECKING:
    from PIL.Image import Image

RECORD: Family = EDIT_PLUS
MODULE: str = edit.MODULE
TEXT_PARTS: Mapping[str, str] = edit.TEXT_PARTS
channels = edit.channels
mu = edit.mu
predict = edit.predict
shifted_times = edit.shifted_times
RESCALES: bool = edit.RESCALES


def text_encoder(
    folders: Mapping[str, Path], kind: Quantization, dtype: torch.dtype, device: torch.device, *, masked: bool = False
) -> Callable[[str, Sequence[Image]], dict[str, Tensor]]:
    """As that of Qwen-Image-Edit."""
    return edit.seeing(folders, kind, dtype, device, lambda number: f"Picture {number}: {edit.PICTURE}")
