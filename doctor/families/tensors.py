"""Which tensors an architecture builds, from its config.json alone. Pure tables, standard library only.

Building the real module tree takes torch and diffusers and several seconds; these closed formulae take a
millisecond, and a test holds them equal to the real trees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import Any

from .components.autoencoder_kl import autoencoder_kl, autoencoder_kl_dialect
from .components.clip_text import clip_dialect, clip_full, clip_text
from .components.qwen3 import qwen3_causal_lm, qwen3_dialect, qwen3_model
from .components.t5 import t5_dialect, t5_encoder
from .flux.tensors import flux_transformer
from .shapes import BadConfig, Shapes
from .zimage.tensors import zimage_transformer

# A whole CLIP or T5 stands for its text encoder: that is the class a trainer builds from its files.
_TABLES: Mapping[str, Callable[[Mapping[str, Any]], Shapes]] = {
    "ZImageTransformer2DModel": zimage_transformer,
    "FluxTransformer2DModel": flux_transformer,
    "AutoencoderKL": autoencoder_kl,
    "CLIPTextModel": clip_text,
    "CLIPTextModelWithProjection": clip_text,
    "CLIPModel": clip_full,
    "T5EncoderModel": t5_encoder,
    "T5Model": t5_encoder,
    "T5ForConditionalGeneration": t5_encoder,
    "Qwen3Model": qwen3_model,
    "Qwen3ForCausalLM": qwen3_causal_lm,
}
_DIALECTS: Mapping[str, Callable[[Shapes, frozenset[str]], Shapes]] = {
    "AutoencoderKL": autoencoder_kl_dialect,
    "CLIPTextModel": clip_dialect,
    "CLIPTextModelWithProjection": clip_dialect,
    "CLIPModel": clip_dialect,
    "T5EncoderModel": t5_dialect,
    "T5Model": t5_dialect,
    "T5ForConditionalGeneration": t5_dialect,
    "Qwen3Model": qwen3_dialect,
    "Qwen3ForCausalLM": qwen3_dialect,
}


def needed_tensors(class_name: str, config: Mapping[str, Any]) -> Shapes | None:
    """Name -> shape of every tensor the class builds from this config.json; absent keys hold the class's defaults.

    None when the class is not known here, or the config asks for something the class cannot build
    (wrong types, sizes out of range, more than 100 000 tensors): `why_not` says which.
    """
    table = _TABLES.get(class_name)
    if table is None or config.get("quantization_config") is not None:
        return None
    try:
        return table(config)
    except BadConfig:
        return None


def why_not(class_name: str | None, config: Mapping[str, Any]) -> str:
    """Why `needed_tensors` answered None, as a phrase."""
    table = _TABLES.get(class_name or "")
    if class_name is None:
        return "its config.json names no class"
    if table is None:
        return f"zdoctor has no table of the tensors of {class_name}; zdoctor check --deep asks the libraries"
    if config.get("quantization_config") is not None:
        return "the weights are stored quantized (config.json has a quantization_config)"
    try:
        table(config)
    except BadConfig as error:
        return f"config.json does not describe a {class_name} that can be built: {error}"
    return ""


def in_the_dialect_of(class_name: str, needed: Shapes, present: Iterable[str]) -> Shapes:
    """`needed` under the names these files use, where the class's own loader accepts older or shorter names."""
    dialect = _DIALECTS.get(class_name)
    return needed if dialect is None else dialect(needed, frozenset(present))


def parameters(shapes: Mapping[str, tuple[int, ...]]) -> int:
    """How many numbers these tensors hold."""
    return sum(prod(shape) for shape in shapes.values())


__all__ = ["BadConfig", "Shapes", "in_the_dialect_of", "needed_tensors", "parameters", "why_not"]
