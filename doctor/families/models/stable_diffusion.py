"""Stable Diffusion 1.5 and SDXL, as folders of the diffusers layout."""

from __future__ import annotations

from ...model.record import replace
from ..record import Family, Fit, Loader
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
    repos={"xl-base": "stabilityai/stable-diffusion-xl-base-1.0"},
)
FAMILIES: tuple[Family, ...] = (SD15, SDXL)
