"""Stable Diffusion 3.5, medium and large."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...model.record import replace
from ..components.autoencoder_kl import VAE
from ..components.clip_text import CLIP_L
from ..components.published import CLIP_G
from ..components.t5 import T5_XXL
from ..record import Family, Fit, Loader, Memory
from ..record.blank import FILES_ALONE
from ..record.mined import mined_class, mined_tensors
from ..record.of_trainers import Flavour, SimpleTuner
from ..record.shapes import BadConfig, Shapes
from .sd3_files import SD_SCRIPTS, sd3_original_name

_MEDIUM = "stabilityai/stable-diffusion-3.5-medium"
_LARGE = "stabilityai/stable-diffusion-3.5-large"
# The config.json of the transformers of both.
MEDIUM: Mapping[str, Any] = {
    "num_layers": 24,
    "num_attention_heads": 24,
    "caption_projection_dim": 1536,
    "pos_embed_max_size": 384,
    "qk_norm": "rms_norm",
    "dual_attention_layers": list(range(13)),
}
LARGE: Mapping[str, Any] = {
    "num_layers": 38,
    "num_attention_heads": 38,
    "caption_projection_dim": 2432,
    "pos_embed_max_size": 192,
    "qk_norm": "rms_norm",
}
_CLIP = ("CLIPTextModelWithProjection", "CLIPTextModel")


_SECOND = ("to_q", "to_k", "to_v", "to_out.0", "norm_q", "norm_k")


def _tensors(config: Mapping[str, Any]) -> Shapes:
    """Those that were mined; some first blocks of medium attend to the picture a second time."""
    found = mined_tensors("SD3Transformer2DModel", {**config, "dual_attention_layers": []})
    dual = config.get("dual_attention_layers", [])
    if not (isinstance(dual, list) and all(isinstance(one, int) for one in dual)):
        raise BadConfig("dual_attention_layers is no list of numbers")
    for block in (f"transformer_blocks.{number}." for number in dual):
        parts = [f"{block}attn.{part}.{what}" for part in _SECOND for what in ("weight", "bias")]
        found |= {name.replace(".attn.", ".attn2."): found[name] for name in parts if name in found}
        for name in (f"{block}norm1.linear.{what}" for what in ("weight", "bias")):
            if name in found:  # nine numbers of modulation in place of six
                found[name] = (found[name][0] // 6 * 9, *found[name][1:])
    return found


_LOADER = Loader(
    components={
        "transformer": ("SD3Transformer2DModel",),
        "text_encoder": _CLIP,
        "text_encoder_2": _CLIP,
        "text_encoder_3": ("T5EncoderModel", "T5ForConditionalGeneration", "T5Model"),
        "tokenizer": ("CLIPTokenizer",),
        "tokenizer_2": ("CLIPTokenizer",),
        "tokenizer_3": ("T5Tokenizer", "T5TokenizerFast"),
        "vae": ("AutoencoderKL",),
    }
)


def _config(name: str) -> dict[str, Any]:
    return dict(LARGE if "large" in name else MEDIUM)


SD3 = replace(
    FILES_ALONE,
    name="sd3",
    title="Stable Diffusion 3.5",
    transformer=replace(
        mined_class(
            "SD3Transformer2DModel",
            "an SD3 transformer",
            ("pos_embed.pos_embed", "joint_blocks.0.x_block.attn.qkv.weight"),
            original=sd3_original_name,
        ),
        tensors=_tensors,
    ),
    fits=(Fit("vae", "latent_channels", ("in_channels",), 16),),
    published={
        "text_encoder": ("CLIPTextModelWithProjection", CLIP_L),
        "text_encoder_2": ("CLIPTextModelWithProjection", CLIP_G),
        "text_encoder_3": ("T5EncoderModel", T5_XXL),
        "vae": ("AutoencoderKL", VAE),
    },
    base_version="sd3",
    blocks=("transformer_blocks",),
    quantized_blocks=("transformer_blocks",),
    # 77 tokens of CLIP before 154 of T5: helpers/models/sd3/model.py of SimpleTuner (bc8e6ab7)
    memory=Memory(
        word="stable-diffusion-3",
        config=_config,
        heads=("num_attention_heads", 24),
        drawn=1,
        text=77 + 154,
        lora=("transformer_blocks",),
    ),
    simpletuner=SimpleTuner(
        family="sd3",
        flavours={"medium": Flavour(_MEDIUM), "large": Flavour(_LARGE)},
        default="medium",
        taken=False,
        loader=_LOADER,
    ),
    kohya={"sd-scripts": SD_SCRIPTS},
    repos={"3.5-medium": _MEDIUM, "3.5-large": _LARGE},
)
FAMILIES: tuple[Family, ...] = (SD3,)
