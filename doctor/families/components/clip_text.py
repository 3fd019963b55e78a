"""CLIP's text encoder, the short text encoder of Flux."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..shapes import BadConfig, Shapes, bounded, count, linear, size

_PREFIX = "text_model."


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


def clip_dialect(needed: Shapes, present: frozenset[str]) -> Shapes:
    """Published files carry the prefix `text_model.`, which transformers 5 dropped; it reads either, name by name."""
    prefixed = any(name.startswith(_PREFIX) for name in present)
    return {name if name in present or not prefixed else _PREFIX + name: shape for name, shape in needed.items()}
