"""Memory of LoRAs on text encoders, beside the transformer: in zdoctor's own runner, and in kohya's trainers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ..families import family_of
from ..families.record import ModelConfig
from ..families.tensors import needed_tensors, parameters
from .bytes import state_bytes
from .case import Case

MIB = 1 << 20
# Bytes for a prompt in numbers of 2 bytes, of the published ones: its layers computed again, and all kept (traced,
# docs/measurements.md).
_STEP = {"CLIPTextModel": (4 * MIB, 34 * MIB), "T5EncoderModel": (272 * MIB, 3709 * MIB)}
_WORDS = 49408 + 77  # tokens and places that CLIP has embeddings of
# Layers times width of the CLIP that was traced.
_TRACED = {"CLIPTextModel": 12 * 768, "CLIPTextModelWithProjection": 32 * 1280}
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


# The same under autocast with kohya's LoRA in 32 bits (benchmarks/text_encoders.py): its layers computed again, and
# all kept.
_UNDER_AUTOCAST = {"CLIPTextModel": (3 * MIB, 40 * MIB), "CLIPTextModelWithProjection": (13 * MIB, 175 * MIB)}


def untraced(case: Case) -> str:
    """The class of a text encoder with a LoRA of kohya's of which nothing was traced; "" where there is none."""
    published = family_of(case.recipe.architecture).published
    kinds = (published[name][0] for name in case.recipe.network.text_rates)
    return next((kind for kind in kinds if kind not in _UNDER_AUTOCAST), "")


def kohyas_text(case: Case) -> dict[str, int]:
    """Bytes of the LoRA that kohya's trainers put on text encoders, and of its optimizer's state."""
    trained = _trained_as_published(case)
    return {"their LoRA and optimizer": int((case.of_lora + case.of_state) * trained)} if trained else {}


def kohyas_text_step(case: Case) -> dict[str, int]:
    """The same of what a step holds more."""
    published = family_of(case.recipe.architecture).published
    again = case.recipe.offload.gradient_checkpointing
    kinds = [published[name] for name in case.recipe.network.text_rates]
    if not kinds:
        return {}
    a_prompt = sum(_UNDER_AUTOCAST[kind][0 if again else 1] * _size(kind, config) for kind, config in kinds)
    # with layers that are computed again the embeddings get gradients, which nobody takes away
    of_words = case.width * sum(_WORDS * config["hidden_size"] for _, config in kinds) if again else 0
    gradients = case.of_lora * _trained_as_published(case)
    return {"step of the text encoders": int(a_prompt * case.recipe.batch_size + of_words + gradients)}


def _size(kind: str, config: ModelConfig) -> float:
    """How large a text encoder is beside that of its class which was traced: its layers times their width."""
    return float(config["num_hidden_layers"] * config["hidden_size"] / _TRACED[kind])


def _trained_as_published(case: Case) -> int:
    """How many numbers a LoRA of the rank has on the Linears of what the scripts build."""
    published = family_of(case.recipe.architecture).published
    shapes = (needed_tensors(*published[name]) or {} for name in case.recipe.network.text_rates)
    return case.recipe.network.rank * sum(sum(map(sum, _linears(one).values())) for one in shapes)
