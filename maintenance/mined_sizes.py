"""Of what mine_steps.py mines: the configs of each class, and the sizes of pictures, prompts and ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zdoctor.doctor.families.components.autoencoder_kl import VAE
from zdoctor.doctor.families.models.flux2 import KLEIN_4B_CONFIG, KLEIN_9B_CONFIG
from zdoctor.doctor.families.models.wan import WAN22_5B
from zdoctor.maintenance.classes import CLASSES

_PUBLISHED = {source.name: source.configs for source in CLASSES}
# What of the published configs differs from the class's defaults, where that changes what a block is.
CONFIGS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "ZImageTransformer2DModel": ({},),
    "FluxTransformer2DModel": ({"guidance_embeds": True},),
    "QwenImageTransformer2DModel": ({}, {"zero_cond_t": True}),
    "Flux2Transformer2DModel": (
        {},
        {"guidance_embeds": False, "num_attention_heads": 24, "joint_attention_dim": 7680},
        {"guidance_embeds": False, "num_attention_heads": 32, "joint_attention_dim": 12288},
    ),
    "ChromaTransformer2DModel": ({},),
    "WanTransformer3DModel": (
        {},
        {"num_attention_heads": 12, "ffn_dim": 8960},
        {"num_attention_heads": 24, "ffn_dim": 14336, "in_channels": 48, "out_channels": 48},
        {"image_dim": 1280, "added_kv_proj_dim": 5120, "in_channels": 36},
    ),
    "UNet2DConditionModel": _PUBLISHED["UNet2DConditionModel"],
    "Flux2": ({}, KLEIN_4B_CONFIG, KLEIN_9B_CONFIG),
    "SingleStreamDiT": _PUBLISHED["SingleStreamDiT"],
    "Chroma": _PUBLISHED["Chroma"],
    "Ideogram4": ({},),
    "ZImageDCT": ({"in_channels": 3072},),
    **{
        name: _PUBLISHED[name]
        for name in (
            "Lumina2Transformer2DModel",
            "CosmosTransformer3DModel",
            "LTX2VideoTransformer3DModel",
            "HiDreamImageTransformer2DModel",
            "OmniGen2Transformer2DModel",
            "BooguImageTransformer2DModel",
            "ErnieImageTransformer2DModel",
            "NucleusMoEImageTransformer2DModel",
        )
    },
    "PRXTransformer2DModel": _PUBLISHED["PRXTransformer2DModel"][1:],
    "SD3Transformer2DModel": (
        {"num_attention_heads": 38, "caption_projection_dim": 2432, "pos_embed_max_size": 192, "qk_norm": "rms_norm"},
    ),
    "Ideogram4Transformer2DModel": ({},),
}
# what it is called -> its class, and its config
VAES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "AutoencoderKL": ("AutoencoderKL", VAE),
    "AutoencoderKLFlux2": ("AutoencoderKLFlux2", {}),
    "AutoencoderKLQwenImage": ("AutoencoderKLQwenImage", {}),
    "AutoencoderKLWan": ("AutoencoderKLWan", {}),
    "AutoencoderKLWan2.2": WAN22_5B.published["vae"],
    "AutoencoderKLHunyuanVideo": ("AutoencoderKLHunyuanVideo", {}),
    "AutoencoderKLLTX2Video": ("AutoencoderKLLTX2Video", {}),
}
# Of classes whose depths no keys of their own count.
SHALLOW: Mapping[str, Mapping[str, Any]] = {
    "BooguImageTransformer2DModel": {"num_layers": 6, "num_double_stream_layers": 3},
    "HiDreamImageTransformer2DModel": {"llama_layers": [0] * 6},
}
# Of configs with such a key, the tokens of each prompt: the class takes what stands before them for the picture's.
PROMPTS: Mapping[str, tuple[str, int]] = {"WanTransformer3DModel": ("image_dim", 512)}
SIDE = 1024  # pixels of the picture that a VAE is mined with; what it takes grows with the picture's area
FEW = 3  # blocks of each list
# (height and width in tokens, tokens of a prompt, rank): more than there are amounts to solve for. Prompts have whole
# multiples of 256 tokens, to which Krea 2 fills them up.
SIZES = [
    ((32, 32), 256, 16),
    ((64, 64), 256, 16),
    ((64, 64), 1024, 16),
    ((48, 64), 256, 128),
    ((128, 128), 512, 4),
    ((16, 32), 512, 128),
    ((96, 64), 768, 32),
    ((64, 80), 1280, 96),
    ((24, 32), 768, 64),
    ((96, 128), 512, 48),
]
# of prompts so short that two have fewer than 32 tokens
OF_FEW = [
    (cells, text, rank) for (cells, _, rank), text in zip(SIZES, (4, 4, 14, 4, 8, 8, 14, 6, 12, 10), strict=True)
]
# of a UNet, whose prompts have so many tokens, or two or three times as many
OF_UNET = [
    ((48, 48), 77, 16),  # of less the innermost blocks have fewer than 32 rows
    ((64, 64), 77, 16),
    ((64, 64), 231, 16),
    ((48, 64), 77, 128),
    ((48, 64), 154, 128),
    ((128, 128), 77, 4),
    ((96, 64), 231, 32),
    ((96, 96), 154, 64),
    ((64, 128), 231, 96),
    ((128, 96), 77, 48),
]
# One picture is often a view of what several are a copy of.
PICTURES = {"one": 1, "several": 2}
