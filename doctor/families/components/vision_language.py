"""Language models that see, by which later families read prompts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from ...model.record import replace
from ..record import ModelClass
from ..record.mined import mined_class, mined_tensors
from ..record.shapes import Shapes, Tensors, split
from ..record.single_file import Dialect

# transformers 4.52 put the language model beside the vision tower; published files have the names from before.
_BEFORE = {"model.language_model.": "model.", "model.visual.": "visual."}


def _renamed(prefixes: Mapping[str, str], shapes: Shapes) -> Shapes:
    def named(name: str) -> str:
        return next((to + name.removeprefix(of) for of, to in prefixes.items() if name.startswith(of)), name)

    return {named(name): shape for name, shape in shapes.items()}


def _under(prefixes: Mapping[str, str]) -> Dialect:
    """A class whose loader takes names by other prefixes, too: those of which the files have more."""

    def dialect(needed: Shapes, present: Collection[str]) -> Shapes:
        other = _renamed(prefixes, needed)
        return other if len(other.keys() & set(present)) > len(needed.keys() & set(present)) else needed

    return dialect


_QWEN25_VL = mined_class(
    "Qwen2_5_VLForConditionalGeneration",
    "a Qwen2.5-VL text encoder",
    ("visual.merger.mlp.0.weight", "model.visual.merger.mlp.0.weight"),
    dialect=_under(_BEFORE),
    by_kohya=lambda config, present, either: _renamed(
        _BEFORE, mined_tensors("Qwen2_5_VLForConditionalGeneration", config)
    ),
)
_LANGUAGE = "model.language_model."
_LAYER, _BLOCK = f"{_LANGUAGE}layers.0", "model.visual.blocks.0"


def _qwen25_vl(tensors: Tensors) -> dict[str, Any]:
    """What shapes do not tell is as published. Raises BadConfig."""
    seen, wide = tensors.shape(2, f"{_BLOCK}.mlp.gate_proj.weight")
    return {
        "model_type": "qwen2_5_vl",
        "text_config": {
            **_language(tensors, 128),
            "model_type": "qwen2_5_vl_text",
            "max_position_embeddings": 128_000,
            "rms_norm_eps": 1e-6,
            "rope_theta": 1_000_000.0,
            "rope_scaling": {"type": "mrope", "rope_type": "default", "mrope_section": [16, 24, 24]},
        },
        "vision_config": {
            "model_type": "qwen2_5_vl",
            "depth": tensors.count(r"^(?:model\.)?visual\.blocks\.(\d+)\."),
            "hidden_size": wide,
            "intermediate_size": seen,
            "num_heads": split(wide, 80, "heads"),
            "out_hidden_size": tensors.shape(2, "model.visual.merger.mlp.2.weight")[0],
            "fullatt_block_indexes": [7, 15, 23, 31],
            "tokens_per_second": 2,
        },
        "image_token_id": 151655,
        "video_token_id": 151656,
        "vision_start_token_id": 151652,
        "vision_end_token_id": 151653,
        "tie_word_embeddings": False,
    }


def _language(tensors: Tensors, head: int) -> dict[str, Any]:
    """The sizes of a language model whose heads are so wide."""
    words, width = tensors.shape(2, f"{_LANGUAGE}embed_tokens.weight")
    query, key = (tensors.shape(2, f"{_LAYER}.self_attn.{name}_proj.weight")[0] for name in "qk")
    return {
        "vocab_size": words,
        "hidden_size": width,
        "intermediate_size": tensors.shape(2, f"{_LAYER}.mlp.gate_proj.weight")[0],
        "num_hidden_layers": tensors.count(r"^(?:(?:language_)?model\.)+layers\.(\d+)\."),
        "num_attention_heads": split(query, head, "heads"),
        "num_key_value_heads": split(key, head, "heads"),
    }


def _other(prefixes: Mapping[str, str]) -> Callable[[str], str]:
    return lambda name: next(iter(_renamed(prefixes, {name: ()})))


QWEN25_VL: ModelClass = replace(_QWEN25_VL, in_file=_QWEN25_VL.dialect, infer=_qwen25_vl, other=_other(_BEFORE))


def _text_tensors(config: Mapping[str, Any]) -> Shapes:
    """Name -> shape of the language model alone, by the config.json of the whole. Raises BadConfig."""
    every = QWEN25_VL.tensors(config)
    return {name.removeprefix(_LANGUAGE): shape for name, shape in every.items() if name.startswith(_LANGUAGE)}


def _text_in_file(needed: Shapes, present: Collection[str]) -> Shapes:
    """By the prefix under which the file has the first of them, else by none."""
    first = next(iter(needed), "")
    prefix = next((prefix for prefix in (_LANGUAGE, "model.") if prefix + first in present), "")
    return {prefix + name: shape for name, shape in needed.items()}


# What zdoctor's runner builds: captions are all that it lets Qwen2.5-VL read.
QWEN25_VL_TEXT: ModelClass = replace(
    QWEN25_VL, name="Qwen2_5_VLTextModel", tensors=_text_tensors, in_file=_text_in_file, dialect=_text_in_file
)
# Gemma 3's and Mistral's: of their published files.
_LANGUAGE_FIRST = {
    "model.language_model.": "language_model.model.",
    "model.vision_tower.": "vision_tower.",
    "model.multi_modal_projector.": "multi_modal_projector.",
    "lm_head.": "language_model.lm_head.",
}
QWEN3_VL = mined_class(
    "Qwen3VLForConditionalGeneration",
    "a Qwen3-VL text encoder",
    ("model.visual.deepstack_merger_list.0.linear_fc1.weight",),
    by_kohya=lambda config, present, either: _under(_BEFORE)(
        mined_tensors("Qwen3VLForConditionalGeneration", config), present
    ),
)
_MISTRAL3 = mined_class(
    "Mistral3ForConditionalGeneration",
    "a Mistral text encoder",
    (
        "multi_modal_projector.patch_merger.merging_layer.weight",
        "model.multi_modal_projector.patch_merger.merging_layer.weight",
    ),
    dialect=_under(_LANGUAGE_FIRST),
    by_kohya=lambda config, present, either: _renamed(
        _LANGUAGE_FIRST, mined_tensors("Mistral3ForConditionalGeneration", config)
    ),
)


def _mistral3(tensors: Tensors) -> dict[str, Any]:
    """What shapes do not tell is as published. Raises BadConfig."""
    seen, wide = tensors.shape(2, "model.vision_tower.transformer.layers.0.feed_forward.gate_proj.weight")
    return {
        "model_type": "mistral3",
        "text_config": {
            **_language(tensors, 128),
            "model_type": "mistral",
            "head_dim": 128,
            "max_position_embeddings": 131_072,
            "rms_norm_eps": 1e-5,
            "rope_theta": 1_000_000_000.0,
            "sliding_window": None,
        },
        "vision_config": {
            "model_type": "pixtral",
            "hidden_size": wide,
            "intermediate_size": seen,
            "num_hidden_layers": tensors.count(r"^(?:model\.)?vision_tower\.transformer\.layers\.(\d+)\."),
            "num_attention_heads": split(wide, 64, "heads"),
            "head_dim": 64,
            "image_size": 1540,
            "patch_size": 14,
            "rope_theta": 10_000.0,
        },
        "image_token_index": 10,
        "multimodal_projector_bias": False,
        "projector_hidden_act": "gelu",
        "spatial_merge_size": 2,
        "vision_feature_layer": -1,
        "tie_word_embeddings": False,
    }


MISTRAL3: ModelClass = replace(_MISTRAL3, in_file=_MISTRAL3.dialect, infer=_mistral3, other=_other(_LANGUAGE_FIRST))
GEMMA3 = mined_class(
    "Gemma3ForConditionalGeneration",
    "a Gemma 3 text encoder",
    ("multi_modal_projector.mm_soft_emb_norm.weight", "model.multi_modal_projector.mm_soft_emb_norm.weight"),
    dialect=_under(_LANGUAGE_FIRST),
)
CLASSES = (QWEN25_VL, QWEN25_VL_TEXT, QWEN3_VL, MISTRAL3, GEMMA3)
