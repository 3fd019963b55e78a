"""Memory of LoRAs on text encoders, beside the transformer, in zdoctor's own runner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ..families import family_of
from ..families.tensors import needed_tensors, parameters
from .bytes import state_bytes
from .case import Case

MIB = 1 << 20
# Bytes for a prompt in numbers of 2 bytes, of the published ones: its layers computed again, and all kept (traced,
# docs/measurements.md).
_STEP = {"CLIPTextModel": (4 * MIB, 34 * MIB), "T5EncoderModel": (272 * MIB, 3709 * MIB)}
_EMBEDDINGS = ("embedding.weight", "embed_tokens.weight", "shared.weight", "relative_attention_bias.weight")
Shapes = Mapping[str, tuple[int, ...]]


class _Encoder(NamedTuple):
    """Its class, its tensors, and how large it is beside the published one."""

    class_name: str
    shapes: Shapes
    share: float


def trained_text(case: Case, width: int, of_linears: float) -> dict[str, int]:
    """Bytes of the text encoders that learn, and of what is trained on them; none where none learns.

    A number has `width` bytes, one of the Linears of those but CLIP `of_linears`.
    """
    recipe = case.recipe
    if not recipe.network.text_rates:
        return {}
    weights = 0.0
    for class_name, shapes, _ in _encoders(case):
        linears = parameters(_linears(shapes))
        own = width if class_name == "CLIPTextModel" else of_linears
        weights += own * linears + width * (parameters(shapes) - linears)
    held = 4 * (2 if recipe.ema.use else 1) + state_bytes(recipe.optimizer.name)
    return {"text encoders that learn": int(weights), "their LoRA and optimizer": int(held * _trained(case))}


def trained_text_step(case: Case, width: int) -> dict[str, int]:
    """The same of what a step holds more."""
    recipe = case.recipe
    if not recipe.network.text_rates:
        return {}
    kept = 0 if recipe.offload.gradient_checkpointing else 1
    a_prompt = sum(_STEP[one.class_name][kept] * one.share for one in _encoders(case))
    return {"step of the text encoders": int(a_prompt * recipe.batch_size * width / 2) + 4 * _trained(case)}


def _encoders(case: Case) -> Iterator[_Encoder]:
    published = family_of(case.recipe.architecture).published
    for name in case.recipe.network.text_rates:
        class_name, config = published[name]
        shapes = case.sizes.encoders[name]
        yield _Encoder(class_name, shapes, parameters(shapes) / parameters(needed_tensors(class_name, config) or {}))


def _linears(shapes: Shapes) -> Shapes:
    matrices = {name: shape for name, shape in shapes.items() if len(shape) == 2 and name.endswith(".weight")}
    return {name: shape for name, shape in matrices.items() if not name.endswith(_EMBEDDINGS)}


def _trained(case: Case) -> int:
    """How many numbers a LoRA of the rank has on all of their Linears."""
    sides = (sum(sum(shape) for shape in _linears(one.shapes).values()) for one in _encoders(case))
    return case.recipe.network.rank * sum(sides)
