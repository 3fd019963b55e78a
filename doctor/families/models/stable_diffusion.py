"""Stable Diffusion 1.5 and SDXL, as folders of the diffusers layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...model.record import replace
from ..components.autoencoder_kl import VAE
from ..components.clip_text import CLIP_L
from ..components.published import CLIP_G
from ..record import Family, Fit, Loader, Memory
from ..record.blank import FILES_ALONE
from ..record.mined import mined_class

_UNET = mined_class("UNet2DConditionModel", "a UNet", ("down_blocks.0.resnets.0.time_emb_proj.weight",))
_CLIP = ("CLIPTextModel", "CLIPTextModelWithProjection", "CLIPModel")
_COMPONENTS: dict[str, tuple[str, ...]] = {
    "unet": ("UNet2DConditionModel",),
    "text_encoder": _CLIP,
    "tokenizer": ("CLIPTokenizer",),
    "vae": ("AutoencoderKL",),
    "scheduler": (),
}
SD15_CONFIG: Mapping[str, Any] = {"cross_attention_dim": 768, "sample_size": 64}
SDXL_CONFIG: Mapping[str, Any] = {
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
_VAE: Mapping[str, Any] = {**VAE, "latent_channels": 4, "use_quant_conv": True, "use_post_quant_conv": True}
# Of the cells of a picture's latents, in which the first convolutions work; at SD 1.5 attention, too.
_MEMORY = Memory(word="", config=lambda name: dict(SD15_CONFIG), heads=("", 8), text=77, pixels=8, whole=True)

SD15 = replace(
    FILES_ALONE,
    name="sd15",
    overflows=False,
    aliases=("sd1",),
    title="Stable Diffusion 1.5",
    transformer=_UNET,
    loader=Loader(components=_COMPONENTS, single_file=""),
    fits=(
        Fit("text_encoder", "hidden_size", ("cross_attention_dim",), 1280),
        Fit("vae", "latent_channels", ("in_channels",), 4),
    ),
    published={"text_encoder": ("CLIPTextModel", CLIP_L), "vae": ("AutoencoderKL", _VAE)},
    memory=_MEMORY,
    repos={"v1-5": "stable-diffusion-v1-5/stable-diffusion-v1-5"},
)
SDXL = replace(
    SD15,
    name="sdxl",
    aliases=(),
    title="SDXL",
    loader=Loader(
        components={**_COMPONENTS, "text_encoder_2": _CLIP, "tokenizer_2": ("CLIPTokenizer",)}, single_file=""
    ),
    fits=(Fit("vae", "latent_channels", ("in_channels",), 4),),
    published={**SD15.published, "text_encoder_2": ("CLIPTextModelWithProjection", CLIP_G)},
    memory=replace(_MEMORY, config=lambda name: dict(SDXL_CONFIG), heads=("", 1)),
    repos={"xl-base": "stabilityai/stable-diffusion-xl-base-1.0"},
)
FAMILIES: tuple[Family, ...] = (SD15, SDXL)
