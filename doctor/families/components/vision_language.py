"""Language models that see, by which later families read prompts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ...model.record import replace
from ..record import ModelClass
from ..record.mined import mined_class, mined_tensors
from ..record.shapes import Shapes
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
QWEN25_VL: ModelClass = replace(_QWEN25_VL, in_file=_QWEN25_VL.dialect)
_LANGUAGE = "model.language_model."


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
MISTRAL3: ModelClass = replace(_MISTRAL3, in_file=_MISTRAL3.dialect)
GEMMA3 = mined_class(
    "Gemma3ForConditionalGeneration",
    "a Gemma 3 text encoder",
    ("multi_modal_projector.mm_soft_emb_norm.weight", "model.multi_modal_projector.mm_soft_emb_norm.weight"),
    dialect=_under(_LANGUAGE_FIRST),
)
CLASSES = (QWEN25_VL, QWEN25_VL_TEXT, QWEN3_VL, MISTRAL3, GEMMA3)
