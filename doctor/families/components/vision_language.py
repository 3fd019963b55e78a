"""Language models that see, by which later families read prompts."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..record import ModelClass
from ..record.mined import mined_class
from ..record.shapes import Shapes
from ..record.single_file import Dialect

# transformers 4.52 put the language model beside the vision tower; published files have the names from before.
_BEFORE = {"model.language_model.": "model.", "model.visual.": "visual."}


def _under(prefixes: Mapping[str, str]) -> Dialect:
    """A class whose loader takes names by other prefixes, too: those of which the files have more."""

    def named(name: str) -> str:
        return next((to + name.removeprefix(of) for of, to in prefixes.items() if name.startswith(of)), name)

    def dialect(needed: Shapes, present: Collection[str]) -> Shapes:
        other = {named(name): shape for name, shape in needed.items()}
        return other if len(other.keys() & set(present)) > len(needed.keys() & set(present)) else needed

    return dialect


QWEN25_VL: ModelClass = mined_class(
    "Qwen2_5_VLForConditionalGeneration",
    "a Qwen2.5-VL text encoder",
    ("visual.merger.mlp.0.weight", "model.visual.merger.mlp.0.weight"),
    dialect=_under(_BEFORE),
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
MISTRAL3 = mined_class(
    "Mistral3ForConditionalGeneration",
    "a Mistral text encoder",
    (
        "multi_modal_projector.patch_merger.merging_layer.weight",
        "model.multi_modal_projector.patch_merger.merging_layer.weight",
    ),
    dialect=_under(_LANGUAGE_FIRST),
)
GEMMA3 = mined_class(
    "Gemma3ForConditionalGeneration",
    "a Gemma 3 text encoder",
    ("multi_modal_projector.mm_soft_emb_norm.weight", "model.multi_modal_projector.mm_soft_emb_norm.weight"),
    dialect=_under(_LANGUAGE_FIRST),
)
CLASSES = (QWEN25_VL, QWEN3_VL, MISTRAL3, GEMMA3)
