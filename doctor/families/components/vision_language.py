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
CLASSES = (QWEN25_VL,)
