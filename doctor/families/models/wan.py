"""Wan 2.1 and 2.2: from text and from pictures, of one expert and of two."""

from __future__ import annotations

from ...model.record import replace
from ..record import Family, Fit, Loader, Origin
from ..record.blank import FILES_ALONE
from ..record.mined import mined_class

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

WAN21 = replace(
    FILES_ALONE,
    name="wan21",
    title="Wan 2.1",
    transformer=mined_class("WanTransformer3DModel", "a Wan transformer", ("blocks.0.scale_shift_table",)),
    loader=Loader(components=_COMPONENTS, origins=_ORIGINS),
    fits=(Fit("vae", "z_dim", ("in_channels",), 16),),
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
    base_version="wan22_14b",
    repos={"wan2.2-t2v": "ai-toolkit/Wan2.2-T2V-A14B-Diffusers-bf16"},
)
WAN22_14B_I2V = replace(
    WAN22_14B,
    name="wan22_14b_i2v",
    title="Wan 2.2 from pictures",
    fits=WAN21_I2V.fits,
    base_version="wan22_14b_i2v",
    repos={"wan2.2-i2v": "ai-toolkit/Wan2.2-I2V-A14B-Diffusers-bf16"},
)
WAN22_5B = replace(
    WAN21,
    name="wan22_5b",
    title="Wan 2.2 5B",
    base_version="wan22_5b",
    repos={"wan2.2-ti2v": "Wan-AI/Wan2.2-TI2V-5B-Diffusers"},
)
FAMILIES: tuple[Family, ...] = (WAN21, WAN21_I2V, WAN22_14B, WAN22_14B_I2V, WAN22_5B)
