"""Which classes are mined, and from which configs: those of published models, where they are built differently."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from zdoctor.doctor.families.models.krea2 import CONFIG
from zdoctor.doctor.families.qwen_image.record import QWEN_IMAGE


@dataclass(frozen=True)
class Source:
    """A class, its library, and what of the config differs from the class's defaults in models that are published.

    `trainer` is whose own it is, with its commit; there it is called `kind`, and built from one `made_of` object.
    """

    name: str
    module: str
    configs: tuple[Mapping[str, Any], ...] = ({},)
    trainer: str = ""
    kind: str = ""
    made_of: str = ""


_QWEN25_VL_7B = QWEN_IMAGE.published["text_encoder"][1]
_KLEIN_4B = {
    "guidance_embeds": False,
    "num_layers": 5,
    "num_single_layers": 20,
    "num_attention_heads": 24,
    "joint_attention_dim": 7680,
}
_SD35_LARGE = {"num_layers": 38, "num_attention_heads": 38, "caption_projection_dim": 2432, "pos_embed_max_size": 192}
_SDXL = {
    "sample_size": 128,
    "block_out_channels": [320, 640, 1280],
    "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
    "up_block_types": ["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"],
    "mid_block_type": "UNetMidBlock2DCrossAttn",
    "transformer_layers_per_block": [1, 2, 10],
    "attention_head_dim": [5, 10, 20],
    "cross_attention_dim": 2048,
    "use_linear_projection": True,
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 256,
    "projection_class_embeddings_input_dim": 2816,
}
_HIDREAM = {
    "patch_size": 2,
    "in_channels": 16,
    "caption_channels": [4096, 4096],
    "llama_layers": [*range(32), *[31] * 16],
    "max_resolution": [128, 128],
    "axes_dims_rope": [64, 32, 32],
}
_PRX_PIXEL = {
    "in_channels": 3,
    "patch_size": 16,
    "context_in_dim": 2048,
    "hidden_size": 3584,
    "depth": 24,
    "axes_dim": [64, 64],
    "bottleneck_size": 768,
    "resolution_embeds": True,
}
_QWEN3_VL = {
    "hidden_size": 2560,
    "intermediate_size": 9728,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
}
_QWEN3_VL_4B = {
    "text_config": _QWEN3_VL,
    "vision_config": {
        "depth": 24,
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_heads": 16,
        "out_hidden_size": 2560,
        "deepstack_visual_indexes": [5, 11, 17],
    },
    "tie_word_embeddings": True,
}
_QWEN3_VL_8B = {
    "text_config": {**_QWEN3_VL, "hidden_size": 4096, "intermediate_size": 12288},
    "vision_config": {
        "depth": 27,
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_heads": 16,
        "out_hidden_size": 4096,
        "deepstack_visual_indexes": [8, 16, 24],
    },
    "tie_word_embeddings": False,
}
_GEMMA3_12B = {
    "text_config": {
        "hidden_size": 3840,
        "intermediate_size": 15360,
        "num_hidden_layers": 48,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 256,
        "vocab_size": 262208,
    },
    "vision_config": {
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_hidden_layers": 27,
        "num_attention_heads": 16,
        "image_size": 896,
        "patch_size": 14,
        "vision_use_head": False,
    },
}
_MISTRAL_SMALL = {
    "text_config": {
        "model_type": "mistral",
        "hidden_size": 5120,
        "intermediate_size": 32768,
        "num_hidden_layers": 40,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 131072,
    },
    "vision_config": {
        "model_type": "pixtral",
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "head_dim": 64,
        "patch_size": 14,
    },
    "tie_word_embeddings": False,
}
_UMT5_XXL = {
    "d_model": 4096,
    "d_ff": 10240,
    "d_kv": 64,
    "num_heads": 64,
    "num_layers": 24,
    "vocab_size": 256384,
    "feed_forward_proj": "gated-gelu",
}
_LLAMA3_8B = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
}
_CLIP_H = {
    "hidden_size": 1280,
    "intermediate_size": 5120,
    "num_hidden_layers": 32,
    "num_attention_heads": 16,
    "patch_size": 14,
}
# What ai-toolkit writes into its source (chroma/src/model.py).
_CHROMA = {
    "in_channels": 64,
    "context_in_dim": 4096,
    "hidden_size": 3072,
    "mlp_ratio": 4.0,
    "num_heads": 24,
    "depth": 19,
    "depth_single_blocks": 38,
    "axes_dim": [16, 56, 56],
    "theta": 10000,
    "qkv_bias": True,
    "guidance_embed": True,
    "approximator_in_dim": 64,
    "approximator_depth": 5,
    "approximator_hidden_size": 5120,
    "_use_compiled": False,
}
_AI_TOOLKIT = "ai-toolkit 27a03a91"


def _of_ai_toolkit(name: str, module: str, *configs: Mapping[str, Any], kind: str = "", made_of: str = "") -> Source:
    return Source(
        name, f"extensions_built_in.diffusion_models.{module}", configs or ({},), _AI_TOOLKIT, kind or name, made_of
    )


CLASSES = (
    Source("ZImageTransformer2DModel", "diffusers", ({}, {"siglip_feat_dim": 1152})),
    Source("FluxTransformer2DModel", "diffusers", ({}, {"guidance_embeds": True})),
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
    Source("HiDreamImageTransformer2DModel", "diffusers", (_HIDREAM,)),
    Source("ErnieImageTransformer2DModel", "diffusers"),
    Source("NucleusMoEImageTransformer2DModel", "diffusers"),
    Source("PRXTransformer2DModel", "diffusers", ({}, _PRX_PIXEL)),
    Source("AnimaTextConditioner", "diffusers"),
    Source("UNet2DConditionModel", "diffusers", ({"cross_attention_dim": 768, "sample_size": 64}, _SDXL)),
    Source("AutoencoderKLLTX2Video", "diffusers"),
    Source("AutoencoderKLLTX2Audio", "diffusers"),
    Source("LTX2TextConnectors", "diffusers.pipelines.ltx2"),
    Source("LTX2Vocoder", "diffusers.pipelines.ltx2"),
    Source("AutoencoderKLFlux2", "diffusers"),
    Source("AutoencoderKLQwenImage", "diffusers"),
    Source("AutoencoderKLQwenImage21", "diffusers"),
    Source("AutoencoderKLWan", "diffusers"),
    Source(
        "Qwen2_5_VLForConditionalGeneration",
        "transformers",
        (_QWEN25_VL_7B, {**_QWEN25_VL_7B, "tie_word_embeddings": True}),
    ),
    Source("Qwen3VLForConditionalGeneration", "transformers", (_QWEN3_VL_4B, _QWEN3_VL_8B)),
    Source("Qwen3VLTextModel", "transformers", (_QWEN3_VL,)),
    Source(
        "Mistral3ForConditionalGeneration",
        "transformers",
        (_MISTRAL_SMALL, {**_MISTRAL_SMALL, "tie_word_embeddings": True}),
    ),
    Source("UMT5EncoderModel", "transformers", (_UMT5_XXL,)),
    Source("Gemma2Model", "transformers"),
    Source("Gemma3ForConditionalGeneration", "transformers", (_GEMMA3_12B,)),
    Source("LlamaForCausalLM", "transformers", (_LLAMA3_8B,)),
    Source("CLIPVisionModel", "transformers", (_CLIP_H,)),
    _of_ai_toolkit("Flux2", "flux2.src.model", {}, {"use_guidance_embed": False}, made_of="Flux2Params"),
    _of_ai_toolkit("Flux2AutoEncoder", "flux2.src.autoencoder", kind="AutoEncoder", made_of="AutoEncoderParams"),
    _of_ai_toolkit(
        "Flux2AutoEncoderSmall",
        "flux2.src.autoencoder",
        kind="AutoEncoder",
        made_of="AutoEncoderSmallDecoderParams",
    ),
    _of_ai_toolkit("SingleStreamDiT", "krea2.src.mmdit", CONFIG, made_of="SingleMMDiTConfig"),
    _of_ai_toolkit("Chroma", "chroma.src.model", _CHROMA, made_of="ChromaParams"),
    _of_ai_toolkit(
        "Ideogram4", "ideogram4.src.transformer", kind="Ideogram4Transformer2DModel", made_of="Ideogram4Config"
    ),
    _of_ai_toolkit(
        "ZImageDCT", "zeta_chroma.zeta_chroma_transformer", {}, {"use_x0": False}, made_of="ZImageDCTParams"
    ),
    _of_ai_toolkit("OmniGen2Transformer2DModel", "omnigen2.src.models.transformers.transformer_omnigen2"),
    _of_ai_toolkit("BooguImageTransformer2DModel", "boogu_image.src.transformer"),
)
