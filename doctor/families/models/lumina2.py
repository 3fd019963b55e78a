"""Lumina-Image 2.0."""

from __future__ import annotations

from ...model.record import replace
from ..record import Family, Fit, Loader
from ..record.blank import FILES_ALONE
from ..record.mined import mined_class

LUMINA2 = replace(
    FILES_ALONE,
    name="lumina2",
    title="Lumina 2",
    transformer=mined_class(
        "Lumina2Transformer2DModel", "a Lumina 2 transformer", ("time_caption_embed.caption_embedder.0.weight",)
    ),
    loader=Loader(
        components={
            "transformer": ("Lumina2Transformer2DModel",),
            "text_encoder": ("Gemma2Model", "Gemma2ForCausalLM"),
            "tokenizer": (),
            "vae": ("AutoencoderKL",),
            "scheduler": ("FlowMatchEulerDiscreteScheduler",),
        }
    ),
    fits=(
        Fit("text_encoder", "hidden_size", ("cap_feat_dim",), 1024),
        Fit("vae", "latent_channels", ("in_channels",), 16),
    ),
    base_version="lumina2",
    blocks=("layers",),
    quantized_blocks=("layers",),
    repos={"lumina-image-2": "Alpha-VLLM/Lumina-Image-2.0"},
)
FAMILIES: tuple[Family, ...] = (LUMINA2,)
