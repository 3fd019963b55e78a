"""Flux's transformer (dev, schnell, Kontext, Fill, Flex), in diffusers' names and in Black Forest Labs' own."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from ...model.weights import COMFYUI_PREFIX
from ..record import ModelClass
from ..record.reading import Tensors, check_axes, split
from ..record.shapes import Shapes, bounded, count, flag, linear, size
from ..record.single_file import in_diffusers_names, original_layout, with_prefix

_TIME_FREQUENCIES = 256
_AXES = (16, 56, 56)
# Part of a block in diffusers' names -> in Black Forest Labs', where q, k, v and a single block's MLP are fused.
_DOUBLE = {
    "norm1.linear": "img_mod.lin",
    "norm1_context.linear": "txt_mod.lin",
    "attn.to_q": "img_attn.qkv",
    "attn.to_k": "img_attn.qkv",
    "attn.to_v": "img_attn.qkv",
    "attn.add_q_proj": "txt_attn.qkv",
    "attn.add_k_proj": "txt_attn.qkv",
    "attn.add_v_proj": "txt_attn.qkv",
    "attn.to_out.0": "img_attn.proj",
    "attn.to_add_out": "txt_attn.proj",
    "ff.net.0.proj": "img_mlp.0",
    "ff.net.2": "img_mlp.2",
    "ff_context.net.0.proj": "txt_mlp.0",
    "ff_context.net.2": "txt_mlp.2",
}
_DOUBLE_NORMS = {
    "attn.norm_q": "img_attn.norm.query_norm.scale",
    "attn.norm_k": "img_attn.norm.key_norm.scale",
    "attn.norm_added_q": "txt_attn.norm.query_norm.scale",
    "attn.norm_added_k": "txt_attn.norm.key_norm.scale",
}
_SINGLE = {
    "norm.linear": "modulation.lin",
    "attn.to_q": "linear1",
    "attn.to_k": "linear1",
    "attn.to_v": "linear1",
    "proj_mlp": "linear1",
    "proj_out": "linear2",
}
_SINGLE_NORMS = {"attn.norm_q": "norm.query_norm.scale", "attn.norm_k": "norm.key_norm.scale"}
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


def flux_transformer(config: Mapping[str, Any]) -> Shapes:
    """Name -> shape for FluxTransformer2DModel. Raises BadConfig."""
    patch = size(config, "patch_size", 1)
    channels = size(config, "in_channels", 64)
    outputs = size(config, "out_channels", 0) if config.get("out_channels") else channels
    doubles = count(config, "num_layers", 19)
    singles = count(config, "num_single_layers", 38)
    head = size(config, "attention_head_dim", 128)
    width = head * size(config, "num_attention_heads", 24)
    caption = size(config, "joint_attention_dim", 4096)
    pooled = size(config, "pooled_projection_dim", 768)
    guided = flag(config, "guidance_embeds", False)
    bounded(32 * doubles + 16 * singles + 20)

    shapes: Shapes = {}
    embedders = [("timestep_embedder", _TIME_FREQUENCIES), ("text_embedder", pooled)]
    if guided:
        embedders.append(("guidance_embedder", _TIME_FREQUENCIES))
    for name, inputs in embedders:
        linear(shapes, f"time_text_embed.{name}.linear_1", inputs, width)
        linear(shapes, f"time_text_embed.{name}.linear_2", width, width)
    linear(shapes, "context_embedder", caption, width)
    linear(shapes, "x_embedder", channels, width)
    for index in range(doubles):
        block = f"transformer_blocks.{index}"
        for norm in ("norm1", "norm1_context"):
            linear(shapes, f"{block}.{norm}.linear", width, 6 * width)
        for part in ("to_q", "to_k", "to_v", "to_out.0", "add_q_proj", "add_k_proj", "add_v_proj", "to_add_out"):
            linear(shapes, f"{block}.attn.{part}", width, width)
        for norm in _DOUBLE_NORMS:
            shapes[f"{block}.{norm}.weight"] = (head,)
        for part in ("ff", "ff_context"):
            linear(shapes, f"{block}.{part}.net.0.proj", width, 4 * width)
            linear(shapes, f"{block}.{part}.net.2", 4 * width, width)
    for index in range(singles):
        block = f"single_transformer_blocks.{index}"
        linear(shapes, f"{block}.norm.linear", width, 3 * width)
        linear(shapes, f"{block}.proj_mlp", width, 4 * width)
        linear(shapes, f"{block}.proj_out", 5 * width, width)
        for part in ("to_q", "to_k", "to_v"):
            linear(shapes, f"{block}.attn.{part}", width, width)
        for norm in _SINGLE_NORMS:
            shapes[f"{block}.{norm}.weight"] = (head,)
    linear(shapes, "norm_out.linear", width, 2 * width)
    linear(shapes, "proj_out", width, patch * patch * outputs)
    return shapes


def flux_original_name(name: str) -> str:
    """The name in Black Forest Labs' files of a tensor that diffusers calls `name`; several may share one."""
    stem, _, kind = name.rpartition(".")
    head, _, rest = stem.partition(".")
    index, _, part = rest.partition(".")
    if head == "transformer_blocks":
        return f"double_blocks.{index}.{_DOUBLE_NORMS.get(part) or f'{_DOUBLE[part]}.{kind}'}"
    if head == "single_transformer_blocks":
        return f"single_blocks.{index}.{_SINGLE_NORMS.get(part) or f'{_SINGLE[part]}.{kind}'}"
    return f"{_OUTER[stem]}.{kind}"


def _inferred(tensors: Tensors) -> dict[str, Any]:
    width, channels = tensors.shape(2, "x_embedder.weight", "img_in.weight")
    head = tensors.shape(
        1, "transformer_blocks.0.attn.norm_q.weight", "double_blocks.0.img_attn.norm.query_norm.scale"
    )[0]
    text = ("time_text_embed.text_embedder.linear_1.weight", "vector_in.in_layer.weight")
    guidance = ("time_text_embed.guidance_embedder.linear_1.weight", "guidance_in.in_layer.weight")
    check_axes(head, _AXES)
    return {
        "_class_name": "FluxTransformer2DModel",
        "patch_size": 1,
        "in_channels": channels,
        "out_channels": tensors.shape(2, "proj_out.weight", "final_layer.linear.weight")[0],
        "num_layers": tensors.count(r"^(?:transformer_blocks|double_blocks)\.(\d+)\."),
        "num_single_layers": tensors.count(r"^(?:single_transformer_blocks|single_blocks)\.(\d+)\."),
        "attention_head_dim": head,
        "num_attention_heads": split(width, head, "heads"),
        "joint_attention_dim": tensors.shape(2, "context_embedder.weight", "txt_in.weight")[1],
        "pooled_projection_dim": tensors.shape(2, *text)[1],
        "guidance_embeds": tensors.has(*guidance),
        "axes_dims_rope": list(_AXES),
    }


def _in_file(needed: Shapes, present: Collection[str]) -> Shapes:
    return with_prefix(flux_original_name, needed, present)


def _by_kohya(config: Mapping[str, Any], present: Collection[str], either: bool) -> Shapes:
    """As many blocks are built as the file has; a prefix is dropped when the first name, in order, has it."""
    prefix = COMFYUI_PREFIX if min(present, default="").startswith(COMFYUI_PREFIX) else ""
    names = {name.replace(COMFYUI_PREFIX, "") for name in present} if prefix else set(present)
    guided = not names.isdisjoint({"guidance_in.in_layer.bias", "time_text_embed.guidance_embedder.linear_1.bias"})
    built: dict[str, object] = {"guidance_embeds": guided}
    if "transformer_blocks.0.attn.add_k_proj.bias" in names:
        built |= _counted(names, r"transformer_blocks\.(\d+)\.attn\.add_k_proj\.bias", "num_layers")
        built |= _counted(names, r"single_transformer_blocks\.(\d+)\.attn\.to_k\.bias", "num_single_layers")
        needed = flux_transformer(built)
    else:
        built |= _counted(names, r"double_blocks\.(\d+)\.img_attn\.proj\.bias", "num_layers")
        built |= _counted(names, r"single_blocks\.(\d+)\.modulation\.lin\.bias", "num_single_layers")
        needed = original_layout(flux_original_name, flux_transformer(built))
    return {prefix + name: shape for name, shape in needed.items()}


def _counted(names: Collection[str], pattern: str, key: str) -> dict[str, int]:
    indexes = [int(found.group(1)) for name in names if (found := re.fullmatch(pattern, name))]
    return {key: max(indexes) + 1} if indexes else {}


TRANSFORMER = ModelClass(
    name="FluxTransformer2DModel",
    title="a Flux transformer",
    tensors=flux_transformer,
    dialect=in_diffusers_names,
    in_file=_in_file,
    by_kohya=_by_kohya,
    marks=("double_blocks.0.img_attn.norm.query_norm.scale", "transformer_blocks.0.attn.norm_added_q.weight"),
    told_as="FluxTransformer2DModel",
    infer=_inferred,
    original=flux_original_name,
    swapped=("norm_out.linear.weight", "norm_out.linear.bias"),
)
