"""Which classes are mined, and from which configs: those of published models, where they are built differently."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from zdoctor.doctor.families.qwen_image.record import QWEN_IMAGE


@dataclass(frozen=True)
class Source:
    """A class, its library, and what of the config differs from the class's defaults in models that are published."""

    name: str
    module: str
    configs: tuple[Mapping[str, Any], ...] = ({},)


_KLEIN_4B = {
    "guidance_embeds": False,
    "num_layers": 5,
    "num_single_layers": 20,
    "num_attention_heads": 24,
    "joint_attention_dim": 7680,
}
_SD35_LARGE = {"num_layers": 38, "num_attention_heads": 38, "caption_projection_dim": 2432, "pos_embed_max_size": 192}

CLASSES = (
    Source("ZImageTransformer2DModel", "diffusers", ({}, {"siglip_feat_dim": 1152})),
    Source(
        "FluxTransformer2DModel",
        "diffusers",
        ({}, {"guidance_embeds": True}),
    ),
    Source("Flux2Transformer2DModel", "diffusers", ({}, _KLEIN_4B)),
    Source("QwenImageTransformer2DModel", "diffusers"),
    Source("QwenImage21Transformer2DModel", "diffusers"),
    Source("Krea2Transformer2DModel", "diffusers"),
    Source("ChromaTransformer2DModel", "diffusers"),
    Source("Ideogram4Transformer2DModel", "diffusers"),
    Source(
        "WanTransformer3DModel",
        "diffusers",
        ({}, {"image_dim": 1280, "added_kv_proj_dim": 5120, "in_channels": 36}),
    ),
    Source("LTX2VideoTransformer3DModel", "diffusers"),
    Source("SD3Transformer2DModel", "diffusers", ({}, {**_SD35_LARGE, "qk_norm": "rms_norm"})),
    Source("Lumina2Transformer2DModel", "diffusers", ({"cap_feat_dim": 2304, "axes_lens": (300, 512, 512)},)),
    Source(
        "CosmosTransformer3DModel",
        "diffusers",
        ({"num_attention_heads": 16, "extra_pos_embed_type": None},),
    ),
    Source("AutoencoderKLFlux2", "diffusers"),
    Source("AutoencoderKLQwenImage", "diffusers"),
    Source("AutoencoderKLQwenImage21", "diffusers"),
    Source("AutoencoderKLWan", "diffusers"),
    Source("Qwen2_5_VLForConditionalGeneration", "transformers", (QWEN_IMAGE.published["text_encoder"][1],)),
)
