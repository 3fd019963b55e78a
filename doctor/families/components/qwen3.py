"""Qwen3, the text encoder of Z-Image."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ...model.record import replace
from ..record import ModelClass
from ..record.reading import Tensors, split
from ..record.shapes import Shapes, bounded, count, flag, size

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
    layers = count(config, "num_hidden_layers", 32)
    heads = size(config, "num_attention_heads", 32)
    grouped = config.get("num_key_value_heads", 32)
    key_heads = heads if grouped is None else size(config, "num_key_value_heads", 32)
    head = size(config, "head_dim", 128)
    biased = flag(config, "attention_bias", False)
    bounded(16 * layers + 3)

    shapes: Shapes = {"embed_tokens.weight": (size(config, "vocab_size", 151936), width), "norm.weight": (width,)}
    for index in range(layers):
        attention = f"layers.{index}.self_attn"
        for part, outputs, inputs in (
            ("q_proj", heads * head, width),
            ("k_proj", key_heads * head, width),
            ("v_proj", key_heads * head, width),
            ("o_proj", width, heads * head),
        ):
            shapes[f"{attention}.{part}.weight"] = (outputs, inputs)
            if biased:
                shapes[f"{attention}.{part}.bias"] = (outputs,)
        shapes[f"{attention}.q_norm.weight"] = shapes[f"{attention}.k_norm.weight"] = (head,)
        mlp = f"layers.{index}.mlp"
        shapes[f"{mlp}.gate_proj.weight"] = shapes[f"{mlp}.up_proj.weight"] = (hidden, width)
        shapes[f"{mlp}.down_proj.weight"] = (width, hidden)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"layers.{index}.{norm}.weight"] = (width,)
    return shapes


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
    def shape(rank: int, name: str) -> tuple[int, ...]:
        return tensors.shape(rank, name, f"model.{name}")

    words, width = shape(2, "embed_tokens.weight")
    head = shape(1, "layers.0.self_attn.q_norm.weight")[0]
    biased = "layers.0.self_attn.q_proj.bias"
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": words,
        "hidden_size": width,
        "intermediate_size": shape(2, "layers.0.mlp.gate_proj.weight")[0],
        "num_hidden_layers": tensors.count(r"^(?:model\.)?layers\.(\d+)\."),
        "num_attention_heads": split(shape(2, "layers.0.self_attn.q_proj.weight")[0], head, "heads"),
        "num_key_value_heads": split(shape(2, "layers.0.self_attn.k_proj.weight")[0], head, "heads"),
        "head_dim": head,
        "hidden_act": "silu",
        "attention_bias": tensors.has(biased, f"model.{biased}"),
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
    told_as="Qwen3Model",
    infer=_inferred,
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
