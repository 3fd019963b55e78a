"""T5's encoder, the long text encoder of Flux."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ...model.record import replace
from ..record import ModelClass
from ..record.reading import Tensors, split
from ..record.shapes import BadConfig, Shapes, bounded, count, size

_PREFIX = "transformer."
_EMBEDDING, _TIED = "shared.weight", "encoder.embed_tokens.weight"
T5_XXL: Mapping[str, Any] = {
    "d_model": 4096,
    "d_ff": 10240,
    "d_kv": 64,
    "num_heads": 64,
    "num_layers": 24,
    "feed_forward_proj": "gated-gelu",
}
_MARK = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"


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


def t5_dialect(needed: Shapes, present: Collection[str]) -> Shapes:
    """transformers takes either name of the tied embedding, and drops a prefix `transformer.`."""
    prefixed = any(name.startswith(_PREFIX) for name in present)
    found: Shapes = {}
    for name, shape in needed.items():
        names = (name, _TIED) if name == _EMBEDDING else (name,)
        choices = [*names, *(_PREFIX + other for other in names)]
        found[next((c for c in choices if c in present), _PREFIX + name if prefixed else name)] = shape
    return found


def _inferred(tensors: Tensors) -> dict[str, Any]:
    def shape(name: str) -> tuple[int, ...]:
        return tensors.shape(2, name, f"transformer.{name}")

    first = "encoder.block.0.layer"
    buckets, heads = shape(f"{first}.0.SelfAttention.relative_attention_bias.weight")
    inner, width = shape(f"{first}.0.SelfAttention.q.weight")
    ties = ("shared.weight", "encoder.embed_tokens.weight")
    return {
        "architectures": ["T5EncoderModel"],
        "model_type": "t5",
        "vocab_size": tensors.shape(2, *ties, *(f"transformer.{name}" for name in ties))[0],
        "d_model": width,
        "d_ff": shape(f"{first}.1.DenseReluDense.wi_0.weight")[0],
        "d_kv": split(inner, heads, "numbers for each head"),
        "num_heads": heads,
        "num_layers": tensors.count(r"^(?:transformer\.)?encoder\.block\.(\d+)\."),
        "relative_attention_num_buckets": buckets,
        "relative_attention_max_distance": 128,
        "feed_forward_proj": "gated-gelu",
        "layer_norm_epsilon": 1e-6,
        "is_encoder_decoder": False,
        "use_cache": False,
    }


def _by_kohya(config: Mapping[str, Any], present: Collection[str], either: bool) -> Shapes:
    return t5_dialect(t5_encoder(config), [name for name in present if not name.startswith(_PREFIX)])


# A whole T5 stands for its encoder: that is the class a trainer builds from its files.
T5 = ModelClass(
    name="T5EncoderModel",
    title="a T5 text encoder",
    model_type="t5",
    tensors=t5_encoder,
    dialect=t5_dialect,
    in_file=t5_dialect,
    by_kohya=_by_kohya,
    marks=(_MARK, _PREFIX + _MARK),
    told_as="T5EncoderModel",
    infer=_inferred,
    depth=("d_model", 4096, {"num_layers": 24}),
)
CLASSES = (T5, *(replace(T5, name=name) for name in ("T5Model", "T5ForConditionalGeneration")))
