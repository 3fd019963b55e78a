"""The text encoders of OpenCLIP, in the names of their authors: SDXL's second one, that of Stable Diffusion 2."""

from __future__ import annotations

from collections.abc import Collection

from ..record.shapes import Shapes
from ..record.single_file import original_layout

_NAMES = {
    "embeddings.token_embedding": "token_embedding",
    "embeddings.position_embedding.weight": "positional_embedding",
    "encoder.layers.": "transformer.resblocks.",
    ".layer_norm": ".ln_",
    ".mlp.fc1.": ".mlp.c_fc.",
    ".mlp.fc2.": ".mlp.c_proj.",
    ".self_attn.out_proj.": ".attn.out_proj.",
    **{f".self_attn.{one}_proj.": ".attn.in_proj_" for one in "qkv"},
    "final_layer_norm.": "ln_final.",
    "text_projection.weight": "text_projection",
}


def open_clip_name(name: str) -> str:
    """The name of a tensor that transformers calls `name`; query, key and value share one."""
    for ours, theirs in _NAMES.items():
        name = name.replace(ours, theirs)
    return name


def open_clip_names(needed: Shapes, present: Collection[str]) -> Shapes:
    return original_layout(open_clip_name, needed)
