"""Flux's transformer (dev, schnell, Kontext, Fill, Flex), in diffusers' names and in Black Forest Labs' own."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from ...model.weights import COMFYUI_PREFIX
from ..record import ModelClass
from ..record.shapes import Shapes, Tensors, check_axes, count, flag, linear, rms_norm, size, split, tensors_of
from ..record.single_file import original_layout, with_prefix

_TIME_FREQUENCIES = 256
_AXES = (16, 56, 56)
# Part of a block in diffusers' names -> in Black Forest Labs', where q, k, v and a single block's MLP are fused.
_DOUBLE = {
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
_DOUBLE_NORMS = {
    "attn.norm_q": "img_attn.norm.query_norm.scale",
    "attn.norm_k": "img_attn.norm.key_norm.scale",
    "attn.norm_added_q": "txt_attn.norm.query_norm.scale",
    "attn.norm_added_k": "txt_attn.norm.key_norm.scale",
}
_SINGLE = {
    "norm.linear": "modulation.lin",
    **dict.fromkeys(("attn.to_q", "attn.to_k", "attn.to_v", "proj_mlp"), "linear1"),
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
    embedded = {"timestep": _TIME_FREQUENCIES, "text": pooled} | ({"guidance": _TIME_FREQUENCIES} if guided else {})
    return tensors_of(
        {
            **{
                f"time_text_embed.{name}_embedder.linear_1": linear(inputs, width)
                for name, inputs in embedded.items()
            },
            **{f"time_text_embed.{name}_embedder.linear_2": linear(width, width) for name in embedded},
            "context_embedder": linear(caption, width),
            "x_embedder": linear(channels, width),
            "transformer_blocks.*.{norm1,norm1_context}.linear": linear(width, 6 * width),
            "transformer_blocks.*.attn.{to_q,to_k,to_v,to_out.0}": linear(width, width),
            "transformer_blocks.*.attn.{add_q_proj,add_k_proj,add_v_proj,to_add_out}": linear(width, width),
            "transformer_blocks.*.attn.{norm_q,norm_k,norm_added_q,norm_added_k}": rms_norm(head),
            "transformer_blocks.*.{ff,ff_context}.net.0.proj": linear(width, 4 * width),
            "transformer_blocks.*.{ff,ff_context}.net.2": linear(4 * width, width),
            "single_transformer_blocks.*.norm.linear": linear(width, 3 * width),
            "single_transformer_blocks.*.proj_mlp": linear(width, 4 * width),
            "single_transformer_blocks.*.proj_out": linear(5 * width, width),
            "single_transformer_blocks.*.attn.{to_q,to_k,to_v}": linear(width, width),
            "single_transformer_blocks.*.attn.{norm_q,norm_k}": rms_norm(head),
            "norm_out.linear": linear(width, 2 * width),
            "proj_out": linear(width, patch * patch * outputs),
        },
        {"transformer_blocks": doubles, "single_transformer_blocks": singles},
    )


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
    width, channels = tensors.shape(2, "x_embedder.weight")
    head = tensors.shape(1, "transformer_blocks.0.attn.norm_q.weight")[0]
    check_axes(head, _AXES)
    return {
        "_class_name": "FluxTransformer2DModel",
        "patch_size": 1,
        "in_channels": channels,
        "out_channels": tensors.shape(2, "proj_out.weight")[0],
        "num_layers": tensors.count(r"^(?:transformer_blocks|double_blocks)\.(\d+)\."),
        "num_single_layers": tensors.count(r"^(?:single_transformer_blocks|single_blocks)\.(\d+)\."),
        "attention_head_dim": head,
        "num_attention_heads": split(width, head, "heads"),
        "joint_attention_dim": tensors.shape(2, "context_embedder.weight")[1],
        "pooled_projection_dim": tensors.shape(2, "time_text_embed.text_embedder.linear_1.weight")[1],
        "guidance_embeds": tensors.has("time_text_embed.guidance_embedder.linear_1.weight"),
        "axes_dims_rope": list(_AXES),
    }


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
    in_file=partial(with_prefix, flux_original_name),
    by_kohya=_by_kohya,
    marks=("double_blocks.0.img_attn.norm.query_norm.scale", "transformer_blocks.0.attn.norm_added_q.weight"),
    infer=_inferred,
    other=flux_original_name,
    original=flux_original_name,
    swapped=("norm_out.linear.weight", "norm_out.linear.bias"),
)
