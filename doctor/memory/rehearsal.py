"""The step of a case as it can be rehearsed without data, and its phases with what came of that. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..families import family_of
from ..families.network import TITLES
from ..families.record.mined import mined_class_of, mined_classes
from ..families.record.steps import WHOLE
from ..model import Memory, Phase, Unknown
from ..model.memory import STEP, Rehearsed
from ..model.record import dataclass, replace
from .case import Case

DIFFUSERS = "diffusers"  # where a class was mined from it
# what the rehearsal counts itself
_COUNTED = ("activations", "gradients")


@dataclass(frozen=True)
class Question:
    """What is rehearsed, in words that a process understands which imports torch (doctor/train/rehearsal)."""

    class_name: str
    config: Mapping[str, Any]
    blocks: Sequence[str]
    trained: Sequence[str]
    batch: int
    cells: tuple[int, int, int]
    controls: Sequence[tuple[int, int, int]]
    text: int
    rank: int
    kind: str
    way: str
    quantized: Sequence[str]
    checkpointing: bool

    def as_json(self) -> str:
        return json.dumps({name: getattr(self, name) for name in self.__match_args__})


def question_of(case: Case) -> Question | Unknown:
    """The step of the largest picture; Unknown for what cannot be rehearsed."""
    recipe, family = case.recipe, family_of(case.recipe.architecture)
    if case.sizes.of_trainer:
        return Unknown("its transformer is of a class of the trainer's own, which is not rehearsed")
    kind = TITLES.get(recipe.network.type, "LoRA")
    if kind in ("LoKr", "OFT"):
        return Unknown(f"a step with a {kind} is not rehearsed")
    if recipe.offload.gradient_checkpointing and recipe.offload.interval > 1:
        return Unknown("a step that computes only some blocks again is not rehearsed")
    if case.scores(1, 1) and not (case.run.by_runner and case.card):  # which multiplies in float16 there
        return Unknown("attention that is computed in full is not rehearsed")
    if family.class_name in mined_classes() and not mined_class_of(family.class_name)["from"].startswith(DIFFUSERS):
        return Unknown("its transformer is of a class of the trainer's own, which is not rehearsed")
    return asked_of(case)


def asked_of(case: Case) -> Question:
    """The step of the largest picture or film, whoever's its class is."""
    recipe, family, figures = case.recipe, family_of(case.recipe.architecture), case.sizes.figures
    side = figures.pixels
    width, height, length = case.largest
    frames = case.frames(length)
    image, text = case.tokens
    one_control = (image - frames * case.tokens_of(width, height)) // max(1, case.controls)
    cells = (frames, max(1, height // side), max(1, width // side))
    return Question(
        class_name=family.class_name,
        config=case.sizes.config,
        blocks=(WHOLE,) if figures.whole else family.blocks,
        trained=(WHOLE,) if figures.whole else figures.lora or family.targets(refiners=recipe.network.refiners),
        batch=recipe.batch_size,
        cells=cells if figures.windows is None else (1, 1, image),
        controls=[(1, 1, one_control)] * case.controls,
        text=text,
        rank=recipe.network.rank,
        kind=recipe.network.type if case.run.by_runner else "lora",
        way=case.way,
        quantized=family.quantized_blocks if recipe.precision.quantization is not None else (),
        checkpointing=recipe.offload.gradient_checkpointing,
    )


def with_rehearsed(memory: Memory, found: Rehearsed) -> Memory:
    """The phases, the step with what its rehearsal held in place of what was computed."""
    held = {name: size for name, size in found.at_peak.items() if name not in ("transformer", "LoRA weights")}

    def step(phase: Phase) -> Phase:
        if phase.name != STEP:
            return phase
        rest = {name: size for name, size in phase.items.items() if name not in _COUNTED}
        return replace(phase, items={**rest, **held})

    return replace(memory, phases=tuple(map(step, memory.phases)))
