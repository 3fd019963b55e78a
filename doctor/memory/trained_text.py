"""What text encoders that learn hold beside the transformer, in zdoctor's own runner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..families import family_of
from ..families.tensors import needed_tensors, parameters
from ..model.recipe import Recipe
from .bytes import state_bytes

MIB = 1 << 20
# Bytes for a prompt in numbers of 2 bytes: its layers computed again, and all kept (traced, docs/measurements.md).
_STEP = {"CLIPTextModel": (4 * MIB, 34 * MIB), "T5EncoderModel": (272 * MIB, 3709 * MIB)}
_EMBEDDINGS = ("embedding.weight", "embed_tokens.weight", "shared.weight", "relative_attention_bias.weight")


def trained_text(recipe: Recipe, width: int, of_linears: float) -> dict[str, int]:
    """Bytes of the text encoders that learn, and of what is trained on them; none where none learns.

    A number has `width` bytes, one of the Linears of those but CLIP `of_linears`.
    """
    if not recipe.network.text_rates:
        return {}
    weights = 0.0
    for class_name, shapes in _encoders(recipe):
        linears = parameters(_linears(shapes))
        own = width if class_name == "CLIPTextModel" else of_linears
        weights += own * linears + width * (parameters(shapes) - linears)
    trained = _trained(recipe)
    held = 4 * (2 if recipe.ema.use else 1) + state_bytes(recipe.optimizer.name)
    return {"text encoders that learn": int(weights), "their LoRA and optimizer": int(held * trained)}


def trained_text_step(recipe: Recipe, width: int) -> dict[str, int]:
    """The same of what a step holds more."""
    if not recipe.network.text_rates:
        return {}
    kept = 0 if recipe.offload.gradient_checkpointing else 1
    a_prompt = sum(_STEP[class_name][kept] for class_name, _ in _encoders(recipe))
    return {"step of the text encoders": a_prompt * recipe.batch_size * width // 2 + 4 * _trained(recipe)}


def _encoders(recipe: Recipe) -> Iterator[tuple[str, Mapping[str, tuple[int, ...]]]]:
    """The class and the tensors of each, as published."""
    published = family_of(recipe.architecture).published
    for name in recipe.network.text_rates:
        class_name, config = published[name]
        yield class_name, needed_tensors(class_name, config) or {}


def _linears(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    matrices = {name: shape for name, shape in shapes.items() if len(shape) == 2 and name.endswith(".weight")}
    return {name: shape for name, shape in matrices.items() if not name.endswith(_EMBEDDINGS)}


def _trained(recipe: Recipe) -> int:
    """How many numbers a LoRA of the rank has on all of their Linears."""
    sides = (sum(sum(shape) for shape in _linears(shapes).values()) for _, shapes in _encoders(recipe))
    return recipe.network.rank * sum(sides)
