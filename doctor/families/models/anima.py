"""Anima: a Cosmos transformer with a text conditioner of its own."""

from __future__ import annotations

from ...model.record import replace
from ..record import Family, Loader
from ..record.blank import FILES_ALONE
from ..record.mined import mined_class

ANIMA = replace(
    FILES_ALONE,
    name="anima",
    title="Anima",
    transformer=mined_class(
        "CosmosTransformer3DModel", "a Cosmos transformer", ("transformer_blocks.0.norm1.linear_1.weight",)
    ),
    loader=Loader(
        components={
            "transformer": ("CosmosTransformer3DModel",),
            "text_conditioner": ("AnimaTextConditioner",),
            "text_encoder": ("Qwen3Model", "Qwen3ForCausalLM"),
            "tokenizer": (),
            "vae": ("AutoencoderKLQwenImage",),
        }
    ),
    base_version="anima",
    repos={"anima": "circlestone-labs/Anima-Base-v1.0-Diffusers"},
)
FAMILIES: tuple[Family, ...] = (ANIMA,)
