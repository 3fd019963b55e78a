"""Flux's transformer (dev, schnell, Kontext, Fill, Flex), in diffusers' names and in Black Forest Labs' own."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from ...model.weights import COMFYUI_PREFIX
from ..record.mined import mined_class, mined_tensors
from ..record.shapes import Shapes
from ..record.single_file import original_layout

_CLASS = "FluxTransformer2DModel"
DOUBLE_NORMS = {
    "attn.norm_q": "img_attn.norm.query_norm.scale",
    "attn.norm_k": "img_attn.norm.key_norm.scale",
    "attn.norm_added_q": "txt_attn.norm.query_norm.scale",
    "attn.norm_added_k": "txt_attn.norm.key_norm.scale",
}
SINGLE_NORMS = {"attn.norm_q": "norm.query_norm.scale", "attn.norm_k": "norm.key_norm.scale"}
# Part of a block in diffusers' names -> in Black Forest Labs', where q, k, v and a single block's MLP are fused.
_DOUBLE = {
    **DOUBLE_NORMS,
    "norm1.linear": "img_mod.lin",
    "norm1_context.linear": "txt_mod.lin",
    **dict.fromkeys(("attn.to_q", "attn.to_k", "attn.to_v"), "img_attn.qkv"),
    **dict.fromkeys(("attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj"), "txt_attn.qkv"),
    "attn.to_out.0": "img_attn.proj",
    "attn.to_add_out": "txt_attn.proj",
    "ff.net.0.proj": "img_mlp.0",
    "ff.net.2": "img_mlp.2",
    "ff_context.net.0.proj": "txt_mlp.0",
    "ff_context.net.2": "txt_mlp.2",
}
_SINGLE = {
    **SINGLE_NORMS,
    "norm.linear": "modulation.lin",
    **dict.fromkeys(("attn.to_q", "attn.to_k", "attn.to_v", "proj_mlp"), "linear1"),
    "proj_out": "linear2",
}
_OUTER = {
    "time_text_embed.timestep_embedder.linear_1": "time_in.in_layer",
    "time_text_embed.timestep_embedder.linear_2": "time_in.out_layer",
    "time_text_embed.text_embedder.linear_1": "vector_in.in_layer",
    "time_text_embed.text_embedder.linear_2": "vector_in.out_layer",
    "time_text_embed.guidance_embedder.linear_1": "guidance_in.in_layer",
    "time_text_embed.guidance_embedder.linear_2": "guidance_in.out_layer",
    "context_embedder": "txt_in",
    "x_embedder": "img_in",
    "norm_out.linear": "final_layer.adaLN_modulation.1",
    "proj_out": "final_layer.linear",
}


def flux_original_name(name: str) -> str:
    """The name in Black Forest Labs' files of a tensor that diffusers calls `name`; several may share one."""
    return in_blocks(name, _DOUBLE, _SINGLE, _OUTER)


def in_blocks(name: str, double: Mapping[str, str], single: Mapping[str, str], outer: Mapping[str, str]) -> str:
    """The original name of what diffusers calls `name`, by the words for parts of each kind of block and the rest."""
    stem, _, kind = name.rpartition(".")
    head, _, rest = stem.partition(".")
    index, _, part = rest.partition(".")
    blocks = {"transformer_blocks": ("double_blocks", double), "single_transformer_blocks": ("single_blocks", single)}
    if head not in blocks:
        return f"{outer[stem]}.{kind}"
    original, parts = blocks[head]
    named = parts[part]
    return f"{original}.{index}.{named if named.endswith('.scale') else f'{named}.{kind}'}"


def _by_kohya(config: Mapping[str, Any], present: Collection[str], either: bool) -> Shapes:
    """As many blocks are built as the file has; a prefix is dropped when the first name, in order, has it."""
    prefix = COMFYUI_PREFIX if min(present, default="").startswith(COMFYUI_PREFIX) else ""
    names = {name.replace(COMFYUI_PREFIX, "") for name in present} if prefix else set(present)
    guided = not names.isdisjoint({"guidance_in.in_layer.bias", "time_text_embed.guidance_embedder.linear_1.bias"})
    built: dict[str, object] = {"guidance_embeds": guided}
    if "transformer_blocks.0.attn.add_k_proj.bias" in names:
        built |= _counted(names, r"transformer_blocks\.(\d+)\.attn\.add_k_proj\.bias", "num_layers")
        built |= _counted(names, r"single_transformer_blocks\.(\d+)\.attn\.to_k\.bias", "num_single_layers")
        needed = mined_tensors(_CLASS, built)
    else:
        built |= _counted(names, r"double_blocks\.(\d+)\.img_attn\.proj\.bias", "num_layers")
        built |= _counted(names, r"single_blocks\.(\d+)\.modulation\.lin\.bias", "num_single_layers")
        needed = original_layout(flux_original_name, mined_tensors(_CLASS, built))
    return {prefix + name: shape for name, shape in needed.items()}


def _counted(names: Collection[str], pattern: str, key: str) -> dict[str, int]:
    indexes = [int(found.group(1)) for name in names if (found := re.fullmatch(pattern, name))]
    return {key: max(indexes) + 1} if indexes else {}


TRANSFORMER = mined_class(
    _CLASS,
    "a Flux transformer",
    ("double_blocks.0.img_mod.lin.weight", "single_transformer_blocks.0.norm.linear.weight"),
    head="attention_head_dim",
    axes=(16, 56, 56),
    original=flux_original_name,
    by_kohya=_by_kohya,
    swapped=("norm_out.linear.weight", "norm_out.linear.bias"),
)
