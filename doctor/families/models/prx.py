"""PRXPixel, which works on pixels and has no VAE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...model.record import replace
from ..components.published import QWEN3_VL_2B
from ..record import Family, Loader, Memory
from ..record.blank import FILES_ALONE
from ..record.mined import mined_class

CONFIG: Mapping[str, Any] = {
    "in_channels": 3,
    "patch_size": 16,
    "context_in_dim": 2048,
    "hidden_size": 3584,
    "depth": 24,
    "axes_dim": [64, 64],
    "bottleneck_size": 768,
    "resolution_embeds": True,
}

PRX_PIXEL = replace(
    FILES_ALONE,
    name="prx_pixel",
    title="PRXPixel",
    transformer=mined_class(
        "PRXTransformer2DModel", "a PRX transformer", ("blocks.0.attention.img_qkv_proj.weight",)
    ),
    loader=Loader(
        components={
            "transformer": ("PRXTransformer2DModel",),
            "text_encoder": ("Qwen3VLTextModel",),
            "tokenizer": (),
        }
    ),
    blocks=("blocks",),
    quantized_blocks=("blocks",),
    published={"text_encoder": ("Qwen3VLTextModel", QWEN3_VL_2B)},
    memory=Memory(
        word="", config=lambda name: dict(CONFIG), heads=("num_heads", 28), drawn=1, text=256, lora=("blocks",)
    ),
    repos={"prxpixel": "Photoroom/prxpixel-t2i"},
)
FAMILIES: tuple[Family, ...] = (PRX_PIXEL,)
