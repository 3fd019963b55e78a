"""Zeta Chroma, which works on pixels with the text encoder of Z-Image."""

from __future__ import annotations

from ...model.record import replace
from ..components.qwen3 import QWEN3_4B
from ..record import Family, Loader, Memory, Origin
from ..record.blank import FILES_ALONE
from ..record.mined import mined_class

_FILE = "zeta-chroma-base-x0-pixel-dino-distance.safetensors"  # ai-toolkit 27a03a91, zeta_chroma/zeta_chroma_model.py
_PIXELS = 32 * 32 * 3

ZETA_CHROMA = replace(
    FILES_ALONE,
    name="zeta_chroma",
    title="Zeta Chroma",
    transformer=mined_class("ZImageDCT", "a Zeta Chroma transformer", ("dec_net.cond_embed.weight",)),
    loader=Loader(
        components={
            "transformer": ("ZImageDCT",),
            "text_encoder": ("Qwen3ForCausalLM", "Qwen3Model"),
            "tokenizer": (),
        },
        extras=True,
        extras_first=True,
        origins={
            "transformer": Origin(
                file=lambda repo: _FILE if repo else "",
                built=lambda tensors: ("ZImageDCT", {"in_channels": _PIXELS, "use_x0": "__x0__" in tensors}),
            )
        },
    ),
    base_version="zeta_chroma",
    blocks=("layers",),
    quantized_blocks=("layers",),
    published={"text_encoder": ("Qwen3ForCausalLM", QWEN3_4B)},
    memory=Memory(
        word="",
        config=lambda name: {"in_channels": _PIXELS},
        heads=("n_heads", 30),
        drawn=1,
        text=512,
        pixels=32,
        lora=("layers",),
        loads_whole=True,
    ),
    repos={"zeta": "lodestones/Zeta-Chroma"},
)
FAMILIES: tuple[Family, ...] = (ZETA_CHROMA,)
