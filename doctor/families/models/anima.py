"""Anima: a Cosmos transformer with a text conditioner of its own."""

from __future__ import annotations

from ...model.record import replace
from ..components.published import QWEN3_06B
from ..record import Family, Loader, Memory
from ..record.blank import FILES_ALONE
from ..record.mined import mined_class
from . import original_names

ANIMA = replace(
    FILES_ALONE,
    name="anima",
    title="Anima",
    transformer=mined_class(
        "CosmosTransformer3DModel",
        "a Cosmos transformer",
        ("transformer_blocks.0.norm1.linear_1.weight",),
        original=original_names.cosmos,
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
    lora_beside={"text_conditioner": "llm_adapter."},
    blocks=("transformer_blocks",),
    quantized_blocks=("transformer_blocks",),
    published={
        "text_encoder": ("Qwen3Model", QWEN3_06B),
        "text_conditioner": ("AnimaTextConditioner", {}),
        "vae": ("AutoencoderKLQwenImage", {}),
    },
    memory=Memory(
        word="",
        config=lambda name: {"num_attention_heads": 16, "extra_pos_embed_type": None},
        heads=("num_attention_heads", 16),
        drawn=1,
        text=512,
        lora=("transformer_blocks",),
    ),
    repos={"anima": "circlestone-labs/Anima-Base-v1.0-Diffusers"},
)
FAMILIES: tuple[Family, ...] = (ANIMA,)
