"""CLIP's text encoder, the short text encoder of Flux."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ...model.record import replace
from ..record import ModelClass
from ..record.reading import Tensors, split
from ..record.shapes import BadConfig, Shapes, bounded, count, linear, size

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
    layers = count(config, "num_hidden_layers", 12)
    bounded(16 * layers + 4)

    shapes: Shapes = {
        "embeddings.token_embedding.weight": (size(config, "vocab_size", 49408), width),
        "embeddings.position_embedding.weight": (size(config, "max_position_embeddings", 77), width),
    }
    for index in range(layers):
        layer = f"encoder.layers.{index}"
        for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
            linear(shapes, f"{layer}.self_attn.{part}", width, width)
        linear(shapes, f"{layer}.mlp.fc1", width, hidden)
        linear(shapes, f"{layer}.mlp.fc2", hidden, width)
        for norm in ("layer_norm1", "layer_norm2"):
            shapes[f"{layer}.{norm}.weight"] = shapes[f"{layer}.{norm}.bias"] = (width,)
    shapes["final_layer_norm.weight"] = shapes["final_layer_norm.bias"] = (width,)
    return shapes


def clip_full(config: Mapping[str, Any]) -> Shapes:
    """The text half of a whole CLIPModel, which is what CLIPTextModel builds from its config. Raises BadConfig."""
    text = config.get("text_config", {})
    if not isinstance(text, Mapping):
        raise BadConfig("text_config is no object")
    return clip_text(text)


def clip_dialect(needed: Shapes, present: Collection[str]) -> Shapes:
    """Published files carry the prefix `text_model.`, which transformers 5 dropped; it reads either, name by name."""
    prefixed = any(name.startswith(_PREFIX) for name in present)
    return {name if name in present or not prefixed else _PREFIX + name: shape for name, shape in needed.items()}


def _inferred(tensors: Tensors) -> dict[str, Any]:
    def shape(name: str) -> tuple[int, ...]:
        return tensors.shape(2, name, f"text_model.{name}")

    words, width = shape("embeddings.token_embedding.weight")
    return {
        "architectures": ["CLIPTextModel"],
        "model_type": "clip_text_model",
        "vocab_size": words,
        "hidden_size": width,
        "intermediate_size": shape("encoder.layers.0.mlp.fc1.weight")[0],
        "num_hidden_layers": tensors.count(r"^(?:text_model\.)?encoder\.layers\.(\d+)\."),
        "num_attention_heads": split(width, _HEAD, "heads"),
        "max_position_embeddings": shape("embeddings.position_embedding.weight")[0],
        "hidden_act": "quick_gelu",
        "layer_norm_eps": 1e-5,
        "bos_token_id": 0,
        "eos_token_id": 2,  # as published: the pooled state is then that of the highest token
        "pad_token_id": 1,
    }


def _by_kohya(config: Mapping[str, Any], present: Collection[str], either: bool) -> Shapes:
    return {_PREFIX + name: shape for name, shape in clip_text(config).items()}


# A whole CLIP stands for its text encoder: that is the class a trainer builds from its files.
CLIP = ModelClass(
    name="CLIPTextModel",
    title="a CLIP text encoder",
    model_type="clip_text_model",
    tensors=clip_text,
    dialect=clip_dialect,
    in_file=clip_dialect,
    by_kohya=_by_kohya,
    marks=(_MARK, _PREFIX + _MARK),
    told_as="CLIPTextModel",
    infer=_inferred,
    depth=("hidden_size", 768, {"num_hidden_layers": 12}),
)
CLASSES = (
    CLIP,
    replace(CLIP, name="CLIPTextModelWithProjection"),
    replace(CLIP, name="CLIPModel", model_type="clip", tensors=clip_full),
)
