"""Qwen3, the text encoder of Z-Image."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ...model.record import replace
from ..record import ModelClass
from ..record.shapes import Shapes, Tensors, count, flag, linear, matrix, rms_norm, size, split, tensors_of

QWEN3_4B: Mapping[str, Any] = {
    "hidden_size": 2560,
    "intermediate_size": 9728,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
}
_MARK = "layers.0.self_attn.q_norm.weight"


def qwen3_model(config: Mapping[str, Any]) -> Shapes:
    """Name -> shape for Qwen3Model. Raises BadConfig."""
    width = size(config, "hidden_size", 4096)
    hidden = size(config, "intermediate_size", 22016)
    heads = size(config, "num_attention_heads", 32)
    grouped = config.get("num_key_value_heads", 32)
    key_heads = heads if grouped is None else size(config, "num_key_value_heads", 32)
    head = size(config, "head_dim", 128)
    projection = linear if flag(config, "attention_bias", False) else matrix
    return tensors_of(
        {
            "embed_tokens": matrix(width, size(config, "vocab_size", 151936)),
            "norm": rms_norm(width),
            "layers.*.self_attn.q_proj": projection(width, heads * head),
            "layers.*.self_attn.{k_proj,v_proj}": projection(width, key_heads * head),
            "layers.*.self_attn.o_proj": projection(heads * head, width),
            "layers.*.self_attn.{q_norm,k_norm}": rms_norm(head),
            "layers.*.mlp.{gate_proj,up_proj}": matrix(width, hidden),
            "layers.*.mlp.down_proj": matrix(hidden, width),
            "layers.*.{input_layernorm,post_attention_layernorm}": rms_norm(width),
        },
        {"layers": count(config, "num_hidden_layers", 32)},
    )


def qwen3_causal_lm(config: Mapping[str, Any]) -> Shapes:
    """Name -> shape for Qwen3ForCausalLM as it is saved: without `lm_head` when it is tied to the embedding."""
    shapes = {f"model.{name}": shape for name, shape in qwen3_model(config).items()}
    if not flag(config, "tie_word_embeddings", False):
        shapes["lm_head.weight"] = shapes["model.embed_tokens.weight"]
    return shapes


def qwen3_dialect(needed: Shapes, present: Collection[str]) -> Shapes:
    """transformers loads either class from files with or without the `model.` prefix."""
    prefixed = any(name.startswith("model.") for name in present)
    wanted = any(name.startswith("model.") for name in needed)
    if not present or prefixed == wanted:
        return needed
    if wanted:
        return {name.removeprefix("model."): shape for name, shape in needed.items()}
    return {f"model.{name}": shape for name, shape in needed.items()}


def _inferred(tensors: Tensors) -> dict[str, Any]:
    words, width = tensors.shape(2, "embed_tokens.weight")
    head = tensors.shape(1, _MARK)[0]
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": words,
        "hidden_size": width,
        "intermediate_size": tensors.shape(2, "layers.0.mlp.gate_proj.weight")[0],
        "num_hidden_layers": tensors.count(r"^(?:model\.)?layers\.(\d+)\."),
        "num_attention_heads": split(tensors.shape(2, "layers.0.self_attn.q_proj.weight")[0], head, "heads"),
        "num_key_value_heads": split(tensors.shape(2, "layers.0.self_attn.k_proj.weight")[0], head, "heads"),
        "head_dim": head,
        "hidden_act": "silu",
        "attention_bias": tensors.has("layers.0.self_attn.q_proj.bias"),
        "max_position_embeddings": 40960,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000,
        "tie_word_embeddings": True,
    }


QWEN3 = ModelClass(
    name="Qwen3Model",
    title="a Qwen3 text encoder",
    tensors=qwen3_model,
    dialect=qwen3_dialect,
    in_file=qwen3_dialect,
    by_kohya=lambda config, present, either: qwen3_model(config),
    marks=(_MARK, f"model.{_MARK}"),
    infer=_inferred,
    other="model.".__add__,
    depth=("hidden_size", 2560, {"num_hidden_layers": 36}),
)
QWEN3_CAUSAL_LM = replace(
    QWEN3,
    name="Qwen3ForCausalLM",
    model_type="qwen3",
    tensors=qwen3_causal_lm,
    by_kohya=lambda config, present, either: qwen3_causal_lm(config),
)
CLASSES = (QWEN3, QWEN3_CAUSAL_LM)
