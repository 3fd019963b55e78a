"""Anima: a Cosmos transformer with a text conditioner of its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ...model.record import replace
from ..components.published import QWEN3_06B
from ..components.qwen3 import qwen3_dialect
from ..record import Family, Loader, Memory
from ..record.blank import FILES_ALONE
from ..record.block_swap import of_the_last
from ..record.mined import mined_class
from ..record.of_trainers import Kohya, KohyaMemory
from ..record.shapes import Shapes
from . import original_names

# As sd-scripts writes it into its source (anima_utils.py, 48d368fa).
OWN_CONFIG: Mapping[str, Any] = {
    "max_img_h": 512,
    "max_img_w": 512,
    "max_frames": 128,
    "in_channels": 16,
    "out_channels": 16,
    "patch_spatial": 2,
    "patch_temporal": 1,
    "model_channels": 2048,
    "num_blocks": 28,
    "num_heads": 16,
    "crossattn_emb_channels": 1024,
    "pos_emb_cls": "rope3d",
    "pos_emb_learnable": True,
    "use_adaln_lora": True,
    "adaln_lora_dim": 256,
    "rope_h_extrapolation_ratio": 4.0,
    "rope_w_extrapolation_ratio": 4.0,
    "rope_t_extrapolation_ratio": 1.0,
    "rope_enable_fps_modulation": False,
    "use_llm_adapter": True,
}
# What the class computes itself where a file has it not.
_COMPUTED = ("seq", "dim_spatial_range", "dim_temporal_range", "inv_freq")


def _anima(needed: Shapes, present: Collection[str]) -> Shapes:
    return {
        name: shape
        for name, shape in needed.items()
        if name in present or not any(word in name for word in _COMPUTED)
    }


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
    # sd-scripts: library/anima_utils.py, networks/lora_anima.py (48d368fa)
    kohya={
        "sd-scripts": Kohya(
            script="anima_train_network",
            network_module="networks.lora_anima",
            files={"transformer": "pretrained_model_name_or_path", "text_encoder": "qwen3", "vae": "vae"},
            blocks=28,
            guidance=3.5,
            memory=KohyaMemory("sd-scripts/Anima", ("blocks",), of_the_last, left_out="_modulation"),
            classes={"transformer": ("Anima", OWN_CONFIG)},
            prefixes={"transformer": "net."},
            names={"transformer": _anima, "text_encoder": qwen3_dialect},
            strict=True,
            spare=("text_encoder",),
            complete=("transformer", "vae"),
            filled=("text_encoder",),
            text=("text_encoder",),
        )
    },
    repos={"anima": "circlestone-labs/Anima-Base-v1.0-Diffusers"},
)
FAMILIES: tuple[Family, ...] = (ANIMA,)
