"""T5's encoder, the long text encoder of Flux."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..shapes import BadConfig, Shapes, bounded, count, size

_PREFIX = "transformer."
_EMBEDDING, _TIED = "shared.weight", "encoder.embed_tokens.weight"


def t5_encoder(config: Mapping[str, Any]) -> Shapes:
    """Name -> shape for T5EncoderModel as it is saved, with one name for the tied embedding. Raises BadConfig."""
    width = size(config, "d_model", 512)
    hidden = size(config, "d_ff", 2048)
    layers = count(config, "num_layers", 6)
    heads = size(config, "num_heads", 8)
    inner = heads * size(config, "d_kv", 64)
    activation = config.get("feed_forward_proj", "relu")
    if not isinstance(activation, str):
        raise BadConfig("feed_forward_proj is no text")
    inputs = ("wi_0", "wi_1") if activation.startswith("gated-") else ("wi",)
    bounded(10 * layers + 3)

    shapes: Shapes = {_EMBEDDING: (size(config, "vocab_size", 32128), width)}
    for index in range(layers):
        attention = f"encoder.block.{index}.layer.0"
        for part in ("q", "k", "v"):
            shapes[f"{attention}.SelfAttention.{part}.weight"] = (inner, width)
        shapes[f"{attention}.SelfAttention.o.weight"] = (width, inner)
        if index == 0:
            buckets = size(config, "relative_attention_num_buckets", 32)
            shapes[f"{attention}.SelfAttention.relative_attention_bias.weight"] = (buckets, heads)
        shapes[f"{attention}.layer_norm.weight"] = (width,)
        mlp = f"encoder.block.{index}.layer.1"
        for part in inputs:
            shapes[f"{mlp}.DenseReluDense.{part}.weight"] = (hidden, width)
        shapes[f"{mlp}.DenseReluDense.wo.weight"] = (width, hidden)
        shapes[f"{mlp}.layer_norm.weight"] = (width,)
    shapes["encoder.final_layer_norm.weight"] = (width,)
    return shapes


def t5_dialect(needed: Shapes, present: frozenset[str]) -> Shapes:
    """transformers takes either name of the tied embedding, and drops a prefix `transformer.`."""
    prefixed = any(name.startswith(_PREFIX) for name in present)
    found: Shapes = {}
    for name, shape in needed.items():
        names = (name, _TIED) if name == _EMBEDDING else (name,)
        choices = [*names, *(_PREFIX + other for other in names)]
        found[next((c for c in choices if c in present), _PREFIX + name if prefixed else name)] = shape
    return found
