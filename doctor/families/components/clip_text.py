"""CLIP's text encoder, the short text encoder of Flux."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from ...model.record import replace
from ..record import ModelClass
from ..record.shapes import BadConfig, Shapes, Tensors, count, linear, matrix, norm, size, split, tensors_of
from ..record.single_file import original_layout, with_or_without

_PREFIX = "text_model."
CLIP_L: Mapping[str, Any] = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
}
_HEAD = 64
_MARK = "embeddings.token_embedding.weight"


def clip_text(config: Mapping[str, Any]) -> Shapes:
    """Name -> shape for CLIPTextModel, in the names of transformers 5. Raises BadConfig."""
    width = size(config, "hidden_size", 512)
    hidden = size(config, "intermediate_size", 2048)
    return tensors_of(
        {
            "embeddings.token_embedding": matrix(width, size(config, "vocab_size", 49408)),
            "embeddings.position_embedding": matrix(width, size(config, "max_position_embeddings", 77)),
            "encoder.layers.*.self_attn.{q_proj,k_proj,v_proj,out_proj}": linear(width, width),
            "encoder.layers.*.mlp.fc1": linear(width, hidden),
            "encoder.layers.*.mlp.fc2": linear(hidden, width),
            "encoder.layers.*.{layer_norm1,layer_norm2}": norm(width),
            "final_layer_norm": norm(width),
        },
        {"encoder.layers": count(config, "num_hidden_layers", 12)},
    )


def clip_full(config: Mapping[str, Any]) -> Shapes:
    """The text half of a whole CLIPModel, which is what CLIPTextModel builds from its config. Raises BadConfig."""
    text = config.get("text_config", {})
    if not isinstance(text, Mapping):
        raise BadConfig("text_config is no object")
    return clip_text(text)


def clip_projected(config: Mapping[str, Any]) -> Shapes:
    """Name -> shape for CLIPTextModelWithProjection. Raises BadConfig."""
    projection = size(config, "projection_dim", 512), size(config, "hidden_size", 512)
    return {**clip_text(config), "text_projection.weight": projection}


# Published files carry the prefix `text_model.`, which transformers 5 dropped.
_DIALECT = with_or_without(_PREFIX)


def _inferred(tensors: Tensors) -> dict[str, Any]:
    words, width = tensors.shape(2, _MARK)
    return {
        "architectures": ["CLIPTextModel"],
        "model_type": "clip_text_model",
        "vocab_size": words,
        "hidden_size": width,
        "intermediate_size": tensors.shape(2, "encoder.layers.0.mlp.fc1.weight")[0],
        "num_hidden_layers": tensors.count(r"^(?:text_model\.)?encoder\.layers\.(\d+)\."),
        "num_attention_heads": split(width, _HEAD, "heads"),
        "max_position_embeddings": tensors.shape(2, "embeddings.position_embedding.weight")[0],
        "hidden_act": "quick_gelu",
        "layer_norm_eps": 1e-5,
        "bos_token_id": 0,
        "eos_token_id": 2,  # as published: the pooled state is then that of the highest token
        "pad_token_id": 1,
    }


# A whole CLIP stands for its text encoder: that is the class a trainer builds from its files.
CLIP = ModelClass(
    name="CLIPTextModel",
    title="a CLIP text encoder",
    model_type="clip_text_model",
    tensors=clip_text,
    dialect=_DIALECT,
    in_file=_DIALECT,
    by_kohya=lambda config, present, either: {_PREFIX + name: shape for name, shape in clip_text(config).items()},
    marks=(_MARK, _PREFIX + _MARK),
    infer=_inferred,
    other=_PREFIX.__add__,
    depth=("hidden_size", 768, {"num_hidden_layers": 12}),
)
# A part of a layer -> as OpenCLIP, whose text encoder is SDXL's second, has it.
_OPEN_LAYER = {
    **dict.fromkeys((f"self_attn.{part}_proj" for part in "qkv"), "attn.in_proj"),
    "self_attn.out_proj": "attn.out_proj",
    "layer_norm1": "ln_1",
    "layer_norm2": "ln_2",
    "mlp.fc1": "mlp.c_fc",
    "mlp.fc2": "mlp.c_proj",
}
_OPEN = {
    _MARK: "token_embedding.weight",
    "embeddings.position_embedding.weight": "positional_embedding",
    "final_layer_norm.weight": "ln_final.weight",
    "final_layer_norm.bias": "ln_final.bias",
    "text_projection.weight": "text_projection",
}


def open_clip_name(name: str) -> str:
    """The name in OpenCLIP's files of a tensor of a CLIPTextModelWithProjection; q, k and v share one."""
    name = name.removeprefix(_PREFIX)
    found = re.fullmatch(r"encoder\.layers\.(\d+)\.(.+)\.(\w+)", name)
    if found is None:
        return _OPEN.get(name, name)
    part, end = _OPEN_LAYER[found[2]], found[3]
    return f"transformer.resblocks.{found[1]}.{part}{'_' if part == 'attn.in_proj' else '.'}{end}"


def _projected_in_file(needed: Shapes, present: Collection[str]) -> Shapes:
    return original_layout(open_clip_name, needed) if _OPEN_MARK in present else _DIALECT(needed, present)


def _projected(tensors: Tensors) -> dict[str, Any]:
    """As SDXL's second text encoder is published, in the sizes of the file."""
    words, width = tensors.shape(2, _MARK)
    return {
        "model_type": "clip_text_model",
        "vocab_size": words,
        "hidden_size": width,
        "intermediate_size": tensors.shape(2, "encoder.layers.0.mlp.fc1.weight")[0],
        "num_hidden_layers": tensors.count(r"^(?:(?:text_model\.)?encoder\.layers|transformer\.resblocks)\.(\d+)\."),
        "num_attention_heads": split(width, _HEAD, "heads"),
        "max_position_embeddings": tensors.shape(2, "embeddings.position_embedding.weight")[0],
        "projection_dim": width,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-5,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "pad_token_id": 1,
    }


_OPEN_MARK = "transformer.resblocks.0.attn.in_proj_weight"
CLASSES = (
    CLIP,
    replace(
        CLIP,
        name="CLIPTextModelWithProjection",
        tensors=clip_projected,
        marks=(_OPEN_MARK,),
        infer=_projected,
        in_file=_projected_in_file,
        other=open_clip_name,
        depth=None,
        original=open_clip_name,
        turned=("text_projection.weight",),
    ),
    replace(CLIP, name="CLIPModel", model_type="clip", tensors=clip_full),
)
