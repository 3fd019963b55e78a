"""Which classes are mined, and from which configs: those of published models, where they are built differently."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from zdoctor.doctor.families.components.published import (
    CLIP_H,
    GEMMA3_12B,
    LLAMA3_8B,
    MISTRAL_SMALL,
    QWEN3_VL,
    QWEN3_VL_4B,
    QWEN3_VL_8B,
    UMT5_XXL,
)
from zdoctor.doctor.families.models.anima import OWN_CONFIG as ANIMA_OF_SD_SCRIPTS
from zdoctor.doctor.families.models.hidream import CONFIG as HIDREAM_CONFIG
from zdoctor.doctor.families.models.hunyuan_video import (
    FRAMEPACK,
    HUNYUAN_VAE,
    HUNYUAN_VIDEO,
    SIGLIP,
)
from zdoctor.doctor.families.models.krea2 import CONFIG
from zdoctor.doctor.families.models.lumina2 import NEXT_DIT
from zdoctor.doctor.families.models.omnigen2 import CONFIG as OMNIGEN2_CONFIG
from zdoctor.doctor.families.models.prx import CONFIG as PRX_CONFIG
from zdoctor.doctor.families.models.sd3 import LARGE as SD35_LARGE
from zdoctor.doctor.families.models.stable_diffusion import SD15_CONFIG, SDXL_CONFIG
from zdoctor.doctor.families.models.wan import (
    WAN22_5B,
    WAN_14B,
    WAN_BOTH_ENDS,
    WAN_CLIP,
    WAN_SEEING,
    WAN_SEEING_22,
    WAN_T5,
    WAN_VAE,
)
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


def _of_musubi(name: str, module: str, *configs: Mapping[str, Any]) -> Source:
    return Source(name, f"musubi_tuner.{module}", configs or ({},), "musubi-tuner 30c658c4", name)


_SD_SCRIPTS = "sd-scripts 48d368fa"

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
    Source("SD3Transformer2DModel", "diffusers", ({}, SD35_LARGE)),
    Source("Lumina2Transformer2DModel", "diffusers", ({"cap_feat_dim": 2304, "axes_lens": (300, 512, 512)},)),
    Source(
        "CosmosTransformer3DModel",
        "diffusers",
        ({"num_attention_heads": 16, "extra_pos_embed_type": None},),
    ),
    Source("HiDreamImageTransformer2DModel", "diffusers", (HIDREAM_CONFIG,)),
    Source("ErnieImageTransformer2DModel", "diffusers"),
    Source("NucleusMoEImageTransformer2DModel", "diffusers"),
    Source("PRXTransformer2DModel", "diffusers", ({}, PRX_CONFIG)),
    Source("AnimaTextConditioner", "diffusers"),
    Source("UNet2DConditionModel", "diffusers", (SD15_CONFIG, SDXL_CONFIG)),
    Source("AutoencoderKLLTX2Video", "diffusers"),
    Source("AutoencoderKLLTX2Audio", "diffusers"),
    Source("LTX2TextConnectors", "diffusers.pipelines.ltx2"),
    Source("LTX2Vocoder", "diffusers.pipelines.ltx2"),
    Source("AutoencoderKLFlux2", "diffusers"),
    Source("AutoencoderKLQwenImage", "diffusers"),
    Source("AutoencoderKLQwenImage21", "diffusers"),
    Source("AutoencoderKLWan", "diffusers", ({}, WAN22_5B.published["vae"][1])),
    Source(
        "Qwen2_5_VLForConditionalGeneration",
        "transformers",
        (_QWEN25_VL_7B, {**_QWEN25_VL_7B, "tie_word_embeddings": True}),
    ),
    Source("Qwen3VLForConditionalGeneration", "transformers", (QWEN3_VL_4B, QWEN3_VL_8B)),
    Source("Qwen3VLTextModel", "transformers", (QWEN3_VL,)),
    Source(
        "Mistral3ForConditionalGeneration",
        "transformers",
        (MISTRAL_SMALL, {**MISTRAL_SMALL, "tie_word_embeddings": True}),
    ),
    Source("UMT5EncoderModel", "transformers", (UMT5_XXL,)),
    Source("Gemma2Model", "transformers"),
    Source("Gemma3ForConditionalGeneration", "transformers", (GEMMA3_12B,)),
    Source("LlamaForCausalLM", "transformers", (LLAMA3_8B,)),
    Source("LlamaModel", "transformers", (LLAMA3_8B,)),
    Source("CLIPVisionModel", "transformers", (CLIP_H,)),
    Source("SiglipVisionModel", "transformers", (SIGLIP,)),
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
    _of_ai_toolkit(
        "OmniGen2Transformer2DModel", "omnigen2.src.models.transformers.transformer_omnigen2", OMNIGEN2_CONFIG
    ),
    _of_ai_toolkit("BooguImageTransformer2DModel", "boogu_image.src.transformer"),
    _of_musubi("HYVideoDiffusionTransformer", "hunyuan_model.models", HUNYUAN_VIDEO),
    _of_musubi("HunyuanVideoTransformer3DModelPacked", "frame_pack.hunyuan_video_packed", FRAMEPACK),
    _of_musubi("AutoencoderKLCausal3D", "hunyuan_model.autoencoder_kl_causal_3d", HUNYUAN_VAE),
    _of_musubi("WanModel", "wan.modules.model", WAN_14B, WAN_SEEING, WAN_SEEING_22, WAN_BOTH_ENDS),
    _of_musubi("WanVAE_", "wan.modules.vae", WAN_VAE),
    _of_musubi("T5Encoder", "wan.modules.t5", WAN_T5),
    _of_musubi("XLMRobertaCLIP", "wan.modules.clip", WAN_CLIP),
    Source("NextDiT", "library.lumina_models", (NEXT_DIT,), _SD_SCRIPTS),
    Source("Anima", "library.anima_models", (ANIMA_OF_SD_SCRIPTS,), _SD_SCRIPTS),
)
