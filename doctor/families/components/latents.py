"""Autoencoders of later families, whose latents are of pictures and films alike."""

from __future__ import annotations

from ..record import ModelClass
from ..record.mined import mined_class

QWEN_IMAGE_VAE: ModelClass = mined_class(
    "AutoencoderKLQwenImage", "a VAE of Qwen-Image", ("encoder.down_blocks.0.norm1.gamma",)
)
CLASSES = (QWEN_IMAGE_VAE,)
