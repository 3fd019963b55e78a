"""Wan 2.1 and 2.2: from text and from pictures, of one expert and of two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...model.record import replace
from ..components.published import CLIP_H, UMT5_XXL
from ..record import Family, Fit, Loader, Memory, Origin
from ..record.blank import FILES_ALONE
from ..record.mined import mined_class
from . import original_names

# ai-toolkit 27a03a91, toolkit/models/wan21/wan21.py and wan22/wan22_14b_model.py
_UMT5 = Origin(repo="ai-toolkit/umt5_xxl_encoder", beside="text_encoder")
_VAE = Origin(beside="vae")
_COMPONENTS: dict[str, tuple[str, ...]] = {
    "transformer": ("WanTransformer3DModel",),
    "text_encoder": ("UMT5EncoderModel",),
    "tokenizer": (),
    "vae": ("AutoencoderKLWan",),
}
_ORIGINS = {"text_encoder": _UMT5, "tokenizer": _UMT5, "vae": _VAE}
_EXPERTS = Loader(
    components={**_COMPONENTS, "transformer_2": ("WanTransformer3DModel",)},
    origins={**_ORIGINS, "vae": Origin(repo="ai-toolkit/wan2.1-vae", folder="")},
)
_UMT5_CONFIG = ("UMT5EncoderModel", UMT5_XXL)
_SMALL: Mapping[str, Any] = {"num_attention_heads": 12, "ffn_dim": 8960, "num_layers": 30}
CONFIG_SEEING: Mapping[str, Any] = {"image_dim": 1280, "added_kv_proj_dim": 5120, "in_channels": 36}
CONFIG_5B: Mapping[str, Any] = {
    "num_attention_heads": 24,
    "ffn_dim": 14336,
    "num_layers": 30,
    "in_channels": 48,
    "out_channels": 48,
}
_VAE_5B: Mapping[str, Any] = {
    "base_dim": 160,
    "decoder_base_dim": 256,
    "z_dim": 48,
    "is_residual": True,
    "in_channels": 12,
    "out_channels": 12,
    "patch_size": 2,
    "scale_factor_spatial": 16,
    "dim_mult": [1, 2, 4, 4],
    "temperal_downsample": [False, True, True],
    "latents_mean": [0.0] * 48,
    "latents_std": [1.0] * 48,
}
_MEMORY = Memory(
    word="wan",
    config=lambda name: dict(_SMALL) if "1.3b" in name else {},
    heads=("num_attention_heads", 40),
    drawn=1,
    text=512,
    tile=256,
    lora=("blocks",),
    frames=4,
    loads_whole=True,
)

WAN21 = replace(
    FILES_ALONE,
    name="wan21",
    title="Wan 2.1",
    transformer=mined_class(
        "WanTransformer3DModel", "a Wan transformer", ("blocks.0.scale_shift_table",), original=original_names.wan
    ),
    loader=Loader(components=_COMPONENTS, origins=_ORIGINS),
    fits=(Fit("vae", "z_dim", ("in_channels",), 16),),
    published={"text_encoder": _UMT5_CONFIG, "vae": ("AutoencoderKLWan", {})},
    memory=_MEMORY,
    base_version="wan21",
    blocks=("blocks",),
    quantized_blocks=("blocks",),
    repos={"t2v-1.3b": "Wan-AI/Wan2.1-T2V-1.3B-Diffusers", "t2v-14b": "Wan-AI/Wan2.1-T2V-14B-Diffusers"},
)
WAN21_I2V = replace(
    WAN21,
    name="wan21_i2v",
    title="Wan 2.1 from pictures",
    loader=Loader(
        components={**_COMPONENTS, "image_encoder": ("CLIPVisionModel", "CLIPVisionModelWithProjection")},
        origins={**_ORIGINS, "image_encoder": Origin(beside="image_encoder")},
    ),
    fits=(Fit("vae", "z_dim", ("out_channels",), 16),),
    published={**WAN21.published, "image_encoder": ("CLIPVisionModel", CLIP_H)},
    memory=replace(_MEMORY, word="", config=lambda name: dict(CONFIG_SEEING)),
    repos={
        "i2v-14b-480p": "Wan-AI/Wan2.1-I2V-14B-480P-Diffusers",
        "i2v-14b-720p": "Wan-AI/Wan2.1-I2V-14B-720P-Diffusers",
    },
)
WAN22_14B = replace(
    WAN21,
    name="wan22_14b",
    title="Wan 2.2",
    loader=_EXPERTS,
    memory=replace(_MEMORY, word="", config=lambda name: {}, experts=2),
    base_version="wan22_14b",
    repos={"wan2.2-t2v": "ai-toolkit/Wan2.2-T2V-A14B-Diffusers-bf16"},
)
WAN22_14B_I2V = replace(
    WAN22_14B,
    name="wan22_14b_i2v",
    title="Wan 2.2 from pictures",
    fits=WAN21_I2V.fits,
    memory=replace(_MEMORY, word="", config=lambda name: {"in_channels": 36}, experts=2),
    base_version="wan22_14b_i2v",
    repos={"wan2.2-i2v": "ai-toolkit/Wan2.2-I2V-A14B-Diffusers-bf16"},
)
WAN22_5B = replace(
    WAN21,
    name="wan22_5b",
    title="Wan 2.2 5B",
    published={**WAN21.published, "vae": ("AutoencoderKLWan", _VAE_5B)},
    memory=replace(_MEMORY, word="", config=lambda name: dict(CONFIG_5B), pixels=32, vae="AutoencoderKLWan2.2"),
    base_version="wan22_5b",
    repos={"wan2.2-ti2v": "Wan-AI/Wan2.2-TI2V-5B-Diffusers"},
)
FAMILIES: tuple[Family, ...] = (WAN21, WAN21_I2V, WAN22_14B, WAN22_14B_I2V, WAN22_5B)
