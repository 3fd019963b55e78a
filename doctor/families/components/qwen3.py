"""Qwen3, the text encoder of Z-Image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..shapes import Shapes, bounded, count, flag, size


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


def qwen3_dialect(needed: Shapes, present: frozenset[str]) -> Shapes:
    """transformers loads either class from files with or without the `model.` prefix."""
    prefixed = any(name.startswith("model.") for name in present)
    wanted = any(name.startswith("model.") for name in needed)
    if not present or prefixed == wanted:
        return needed
    if wanted:
        return {name.removeprefix("model."): shape for name, shape in needed.items()}
    return {f"model.{name}": shape for name, shape in needed.items()}
