"""The closed form against steps of the real classes with few blocks, rehearsed without data."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from zdoctor.doctor.families import family_of
from zdoctor.doctor.families.models.krea2 import CONFIG as KREA2
from zdoctor.doctor.families.tensors import needed_tensors
from zdoctor.doctor.memory import GIB, Placed, placed
from zdoctor.doctor.memory.phases import host_phases_of, phases_of
from zdoctor.doctor.memory.rehearsal import Question, question_of, with_rehearsed
from zdoctor.doctor.model import Component, Gpu, Memory, ModelFolder, Phase, Unknown
from zdoctor.doctor.model.memory import STEP, Rehearsed
from zdoctor.doctor.model.trainer import RUNNER
from zdoctor.doctor.train.rehearsal.program import answer
from zdoctor.tests.changes import changed
from zdoctor.tests.models import run_of

from .runs import ROOMY_T4, SYSTEM, predicted, zimage

CARD = Gpu(0, "a card", 200 * GIB, 200 * GIB, (9, 0), "560", "recorded: a card")
COUNTED = ("transformer", "LoRA weights", "gradients", "activations")
SMALL: dict[str, dict[str, Any]] = {
    "zimage": {"n_layers": 4},
    "flux": {"num_layers": 2, "num_single_layers": 2, "guidance_embeds": True},
    "qwen_image": {"num_layers": 4},
    "qwen_image_edit_plus": {"num_layers": 4},
    "lumina2": {"cap_feat_dim": 2304, "num_layers": 4},
    "wan21": {"num_layers": 4},
    "wan22_14b": {"num_layers": 4},
    "krea2": {**KREA2, "layers": 4},
}


def placed_run(
    architecture: str, resolution: int, card: Gpu = CARD, controls: int = 0, frames: int = 1, **changes: Any
) -> Placed:
    """ai-toolkit's run of a small model of this architecture, with latents and captions cached."""
    config, name = SMALL[architecture], family_of(architecture).class_name
    part = Component("transformer", "/m/t", name, config, (), needed=needed_tensors(name, config))
    run = run_of("/m", architecture)
    folders = ("/c",) * controls
    datasets = tuple(
        replace(d, resolutions=(resolution,), cache_latents=True, control_folders=folders, frames=frames)
        for d in run.recipe.datasets
    )
    run = changed(run, **{"rank": 16, "cache_text_embeddings": True, "datasets": datasets, **changes})
    on = placed(run, ModelFolder("/m", "diffusers", "/m", {"transformer": part}), (), SYSTEM, (card,))
    assert isinstance(on, Placed), on
    return on


def asked(on: Placed) -> Question:
    question = question_of(on.case)
    assert isinstance(question, Question), question
    return question


def step_of(on: Placed) -> Phase:
    return next(phase for phase in phases_of(on.case) if phase.name == STEP)


@pytest.mark.parametrize(
    ("architecture", "resolution", "changes"),
    [
        ("zimage", 1024, {}),
        ("zimage", 512, {"batch_size": 2, "gradient_checkpointing": False, "quantization": "qfloat8"}),
        ("zimage", 768, {"trainer": RUNNER, "quantization": "int8", "rank": 64}),
        ("zimage", 512, {"trainer": RUNNER, "quantization": "int8", "batch_size": 2, "card": ROOMY_T4}),
        ("flux", 1024, {"rank": 48}),
        ("flux", 512, {"trainer": RUNNER, "gradient_checkpointing": False}),
        ("qwen_image", 1024, {"quantization": "qfloat8"}),
        ("qwen_image", 512, {"batch_size": 2, "gradient_checkpointing": False}),
        ("qwen_image_edit_plus", 768, {"controls": 2}),
        ("lumina2", 1024, {"gradient_checkpointing": False}),
        ("wan21", 512, {"frames": 17, "quantization": "qfloat8"}),
    ],
)
def test_a_step_is_predicted_within_two_percent(architecture: str, resolution: int, changes: dict[str, Any]) -> None:
    on = placed_run(architecture, resolution, **changes)
    told = answer(json.loads(asked(on).as_json()))
    assert "failed" not in told, told
    items = step_of(on).items
    assert sum(items[name] for name in COUNTED) == pytest.approx(told["peak"], rel=0.02)


def test_control_images_are_as_large_as_the_trainer_makes_them() -> None:
    """Qwen-Image-Edit-Plus gives each a megapixel, 4096 tokens, unless match_target_res; the others the picture's."""
    own, alike = (
        placed_run("qwen_image_edit_plus", 512, controls=2, controls_match=match).case.tokens[0]
        for match in (False, True)
    )
    assert (own, alike) == (1024 + 2 * 4096, 3 * 1024)
    assert placed_run("qwen_image", 512, controls=2).case.tokens[0] == 1024


def test_a_film_has_the_tokens_of_its_latents() -> None:
    """Wan's VAE makes one of four pictures, but for the first."""
    told = {frames: placed_run("wan21", 512, frames=frames).case.tokens[0] for frames in (1, 4, 5, 81)}
    assert told == {1: 1024, 4: 1024, 5: 2 * 1024, 81: 21 * 1024}
    assert placed_run("lumina2", 512, frames=81).case.tokens[0] == 1024  # of pictures alone


def test_krea_2_fills_up_picture_and_prompt_together() -> None:
    image, text = placed_run("krea2", 768).case.tokens
    assert image == 48 * 48 and (image + text) % 256 == 0 and 256 <= text < 512


@pytest.mark.parametrize("low_vram", [False, True])
def test_of_two_experts_one_waits_with_low_vram(low_vram: bool) -> None:
    """Both have a LoRA and its optimizer; a step goes through one."""
    changes: dict[str, Any] = {"offload.low_vram": low_vram}
    one, two = (placed_run(name, 512, **changes) for name in ("wan21", "wan22_14b"))
    held, of_two = step_of(one).items, step_of(two).items
    assert of_two["transformer"] == (1 if low_vram else 2) * held["transformer"]
    assert of_two["optimizer state"] == 2 * held["optimizer state"] and of_two["activations"] == held["activations"]
    waiting = max(host_phases_of(two.case).values()) - max(host_phases_of(one.case).values())
    assert waiting == (held["transformer"] if low_vram else 0)


def test_a_class_of_the_trainers_own_is_predicted_and_not_rehearsed() -> None:
    on = placed_run("krea2", 512)
    told = question_of(on.case)
    assert isinstance(told, Unknown) and "the trainer's own" in told.reason and step_of(on).items["activations"] > 0


def test_a_class_that_is_not_installed_is_an_answer() -> None:
    question = json.loads(asked(placed_run("zimage", 512)).as_json())
    assert "NoSuchTransformer" in answer({**question, "class_name": "NoSuchTransformer"})["failed"]


def test_what_cannot_be_rehearsed_is_said() -> None:
    told: tuple[dict[str, Any], ...] = ({"network_type": "lokr"}, {"offload.interval": 2})
    for changes in told:
        assert isinstance(question_of(placed_run("zimage", 512, **changes).case), Unknown)


def test_a_rehearsed_step_takes_the_place_of_the_computed_one() -> None:
    memory: Memory = predicted(zimage(512), CARD)
    held = {"transformer": 1, "LoRA weights": 1, "layers": 5 * GIB, "gradients": 7}
    after = with_rehearsed(memory, Rehearsed(9 * GIB, 4 * GIB, held, 1.0))
    step = next(phase for phase in after.phases if phase.name == STEP)
    assert step.items["layers"] == 5 * GIB and step.items["gradients"] == 7 and "activations" not in step.items
    assert step.items["transformer"] > GIB
    assert [phase for phase in after.phases if phase.name != STEP] == [p for p in memory.phases if p.name != STEP]
