"""T5's encoder, the long text encoder of Flux."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ...model.record import replace
from ..record import ModelClass
from ..record.shapes import BadConfig, Shapes, Tensors, count, matrix, rms_norm, size, split, tensors_of
from ..record.single_file import with_or_without

_PREFIX = "transformer."
T5_XXL: Mapping[str, Any] = {
    "d_model": 4096,
    "d_ff": 10240,
    "d_kv": 64,
    "num_heads": 64,
    "num_layers": 24,
    "feed_forward_proj": "gated-gelu",
}
_EMBEDDINGS = ("shared.weight", "encoder.embed_tokens.weight")
_BIAS = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias"


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
    inputs = "{wi_0,wi_1}" if activation.startswith("gated-") else "wi"
    buckets = size(config, "relative_attention_num_buckets", 32)
    return tensors_of(
        {
            "shared": matrix(width, size(config, "vocab_size", 32128)),
            **({_BIAS: matrix(heads, buckets)} if layers else {}),
            "encoder.block.*.layer.0.SelfAttention.{q,k,v}": matrix(width, inner),
            "encoder.block.*.layer.0.SelfAttention.o": matrix(inner, width),
            f"encoder.block.*.layer.1.DenseReluDense.{inputs}": matrix(width, hidden),
            "encoder.block.*.layer.1.DenseReluDense.wo": matrix(hidden, width),
            "encoder.block.*.layer.{0,1}.layer_norm": rms_norm(width),
            "encoder.final_layer_norm": rms_norm(width),
        },
        {"encoder.block": layers},
    )


# transformers takes either name of the tied embedding, and drops the prefix.
_DIALECT = with_or_without(_PREFIX, dict([_EMBEDDINGS]))


def _inferred(tensors: Tensors) -> dict[str, Any]:
    first = "encoder.block.0.layer"
    buckets, heads = tensors.shape(2, f"{_BIAS}.weight")
    inner, width = tensors.shape(2, f"{first}.0.SelfAttention.q.weight")
    embedding = next((name for name in _EMBEDDINGS if tensors.has(name)), _EMBEDDINGS[-1])
    return {
        "architectures": ["T5EncoderModel"],
        "model_type": "t5",
        "vocab_size": tensors.shape(2, embedding)[0],
        "d_model": width,
        "d_ff": tensors.shape(2, f"{first}.1.DenseReluDense.wi_0.weight")[0],
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
    return _DIALECT(t5_encoder(config), [name for name in present if not name.startswith(_PREFIX)])


# A whole T5 stands for its encoder: that is the class a trainer builds from its files.
T5 = ModelClass(
    name="T5EncoderModel",
    title="a T5 text encoder",
    model_type="t5",
    tensors=t5_encoder,
    dialect=_DIALECT,
    in_file=_DIALECT,
    by_kohya=_by_kohya,
    marks=(f"{_BIAS}.weight", f"{_PREFIX}{_BIAS}.weight"),
    infer=_inferred,
    other=_PREFIX.__add__,
    depth=("d_model", 4096, {"num_layers": 24}),
)
CLASSES = (T5, *(replace(T5, name=name) for name in ("T5Model", "T5ForConditionalGeneration")))
