"""Wan 2.1 and 2.2: from text and from pictures, of one expert and of two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...model.record import replace
from ..components.published import CLIP_H, UMT5_XXL
from ..record import Family, Fit, Loader, Memory, ModelConfig, Origin
from ..record.blank import FILES_ALONE
from ..record.block_swap import of_the_last
from ..record.mined import mined_class
from ..record.of_trainers import Flavour, Kohya, KohyaMemory, SimpleTuner
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
CONFIG_SMALL: Mapping[str, Any] = {"num_attention_heads": 12, "ffn_dim": 8960, "num_layers": 30}
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
# Wan's authors' own classes, as musubi-tuner 30c658c4 builds them: wan/configs, wan/modules/t5.py, wan/modules/vae.py
WAN_14B: Mapping[str, Any] = {"dim": 5120, "ffn_dim": 13824, "num_heads": 40, "num_layers": 40}
WAN_1B: Mapping[str, Any] = {"dim": 1536, "ffn_dim": 8960, "num_heads": 12, "num_layers": 30}
WAN_SEEING: Mapping[str, Any] = {**WAN_14B, "model_type": "i2v", "in_dim": 36}
WAN_22: Mapping[str, Any] = {**WAN_14B, "model_version": "2.2"}
WAN_SEEING_22: Mapping[str, Any] = {**WAN_SEEING, "model_version": "2.2"}
WAN_BOTH_ENDS: Mapping[str, Any] = {**WAN_SEEING, "model_type": "flf2v"}
WAN_VAE: Mapping[str, Any] = {"dim": 96, "z_dim": 16, "temperal_downsample": [False, True, True]}
WAN_T5: Mapping[str, Any] = {
    "vocab": 256384,
    "dim": 4096,
    "dim_attn": 4096,
    "dim_ffn": 10240,
    "num_heads": 64,
    "num_layers": 24,
    "num_buckets": 32,
    "shared_pos": False,
}
WAN_CLIP: Mapping[str, Any] = {
    "embed_dim": 1024,
    "image_size": 224,
    "patch_size": 14,
    "vision_dim": 1280,
    "vision_heads": 16,
    "vision_layers": 32,
    "vocab_size": 250002,
    "max_text_len": 514,
    "type_size": 1,
    "text_dim": 1024,
    "text_heads": 16,
    "text_layers": 24,
}


def _musubi(config: ModelConfig, steps: str, *more: str, blocks: int = 40) -> dict[str, Kohya]:
    """Of musubi-tuner's script, which knows the model by its --task, with the options of `more` components."""
    options = {"transformer_2": "dit_high_noise", "image_encoder": "clip"}
    return {
        "musubi-tuner": Kohya(
            script="wan_train_network",
            network_module="networks.lora_wan",
            files={"transformer": "dit", "text_encoder": "t5", "vae": "vae", **{one: options[one] for one in more}},
            blocks=blocks,
            guidance=5.0,
            cache="wan",
            samples_only=True,
            strict=True,
            memory=KohyaMemory(f"musubi-tuner/{steps}", ("blocks",), of_the_last, cast_whole=True),
            classes={
                **dict.fromkeys(("transformer", "transformer_2"), ("WanModel", config)),
                "text_encoder": ("T5Encoder", WAN_T5),
                "vae": ("WanVAE_", WAN_VAE),
                "image_encoder": ("XLMRobertaCLIP", WAN_CLIP),
            },
            optional=more,
            pickled=("text_encoder", "vae", "image_encoder"),
            spare=("vae",),
        )
    }


_MEMORY = Memory(
    word="wan",
    config=lambda name: dict(CONFIG_SMALL) if "1.3b" in name else {},
    heads=("num_attention_heads", 40),
    drawn=1,
    text=512,
    tile=256,
    lora=("blocks",),
    frames=4,
    loads_whole=True,
)
# simpletuner/helpers/models/wan/model.py (bc8e6ab7), which opens folders of the diffusers layout
_SIMPLETUNER = SimpleTuner(
    family="wan",
    flavours={
        "t2v-480p-1.3b-2.1": Flavour("Wan-AI/Wan2.1-T2V-1.3B-Diffusers"),
        "t2v-480p-14b-2.1": Flavour("Wan-AI/Wan2.1-T2V-14B-Diffusers"),
    },
    default="t2v-480p-1.3b-2.1",
    others=(
        "i2v-14b-2.1",
        "i2v-14b-2.1-720p",
        "i2v-14b-2.2-high",
        "i2v-14b-2.2-low",
        "animegen-t2v-high",
        "animegen-t2v-low",
        "flf2v-14b-2.1",
        "vace-1.3b-2.1",
        "vace-14b-2.1",
    ),
    step=32,
    taken=False,
    loader=Loader(_COMPONENTS),
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
    simpletuner=_SIMPLETUNER,
    base_version="wan21",
    blocks=("blocks",),
    quantized_blocks=("blocks",),
    kohya=_musubi(WAN_14B, "WanModel"),
    repos={"t2v-1.3b": "Wan-AI/Wan2.1-T2V-1.3B-Diffusers", "t2v-14b": "Wan-AI/Wan2.1-T2V-14B-Diffusers"},
)
# which ai-toolkit calls wan21, too
WAN21_1B = replace(
    WAN21,
    name="wan21_1b",
    simpletuner=None,
    title="Wan 2.1 1.3B",
    loader=None,
    memory=replace(_MEMORY, word="", config=lambda name: dict(CONFIG_SMALL)),
    kohya=_musubi(WAN_1B, "WanModel", blocks=30),
    repos={},
)
WAN21_I2V = replace(
    WAN21,
    name="wan21_i2v",
    simpletuner=None,
    title="Wan 2.1 from pictures",
    loader=Loader(
        components={**_COMPONENTS, "image_encoder": ("CLIPVisionModel", "CLIPVisionModelWithProjection")},
        origins={**_ORIGINS, "image_encoder": Origin(beside="image_encoder")},
    ),
    fits=(Fit("vae", "z_dim", ("out_channels",), 16),),
    published={**WAN21.published, "image_encoder": ("CLIPVisionModel", CLIP_H)},
    memory=replace(_MEMORY, word="", config=lambda name: dict(CONFIG_SEEING)),
    kohya=_musubi(WAN_SEEING, "WanModelI2V", "image_encoder"),
    repos={
        "i2v-14b-480p": "Wan-AI/Wan2.1-I2V-14B-480P-Diffusers",
        "i2v-14b-720p": "Wan-AI/Wan2.1-I2V-14B-720P-Diffusers",
    },
)
WAN22_14B = replace(
    WAN21,
    name="wan22_14b",
    simpletuner=None,
    title="Wan 2.2",
    loader=_EXPERTS,
    memory=replace(_MEMORY, word="", config=lambda name: {}, experts=2),
    kohya=_musubi(WAN_14B, "WanModel2.2", "transformer_2"),  # whose tensors are those of 2.1
    base_version="wan22_14b",
    repos={"wan2.2-t2v": "ai-toolkit/Wan2.2-T2V-A14B-Diffusers-bf16"},
)
WAN22_14B_I2V = replace(
    WAN22_14B,
    name="wan22_14b_i2v",
    title="Wan 2.2 from pictures",
    fits=WAN21_I2V.fits,
    memory=replace(_MEMORY, word="", config=lambda name: {"in_channels": 36}, experts=2),
    kohya=_musubi(WAN_SEEING_22, "WanModel2.2I2V", "transformer_2"),
    base_version="wan22_14b_i2v",
    repos={"wan2.2-i2v": "ai-toolkit/Wan2.2-I2V-A14B-Diffusers-bf16"},
)
WAN22_5B = replace(
    WAN21,
    name="wan22_5b",
    simpletuner=replace(
        _SIMPLETUNER, flavours={"ti2v-5b-2.2": Flavour("Wan-AI/Wan2.2-TI2V-5B-Diffusers")}, default="", step=64
    ),
    title="Wan 2.2 5B",
    published={**WAN21.published, "vae": ("AutoencoderKLWan", _VAE_5B)},
    memory=replace(_MEMORY, word="", config=lambda name: dict(CONFIG_5B), pixels=32, vae="AutoencoderKLWan2.2"),
    kohya={},  # of which musubi-tuner has none
    base_version="wan22_5b",
    repos={"wan2.2-ti2v": "Wan-AI/Wan2.2-TI2V-5B-Diffusers"},
)
# of which no record is the transformer
CLASSES = (mined_class("WanModel", "a Wan transformer", ("head.modulation",)),)
FAMILIES: tuple[Family, ...] = (WAN21, WAN21_1B, WAN21_I2V, WAN22_14B, WAN22_14B_I2V, WAN22_5B)
