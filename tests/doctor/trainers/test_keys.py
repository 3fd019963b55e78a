"""What a reader says of where a value came from: each name is one of a field."""

from __future__ import annotations

from zdoctor.doctor.configs.written import Written
from zdoctor.doctor.model import Run
from zdoctor.doctor.model.recipe import SHORT_NAMES, Recipe, by_name
from zdoctor.doctor.trainers.ai_toolkit.recipe import keys_of


def test_every_short_name_is_a_field_and_every_key_names_one() -> None:
    names = by_name(Recipe())
    assert names.keys() >= SHORT_NAMES.keys()
    of_run = set(Run.__match_args__)
    apart = {"validation_config", "validation.prompt_width", "validation.prompt_height", "checkpoints.push_to_hub"}
    apart |= {"precision.quantize", "precision.quantize_text_encoder", "recovery_adapter"}
    apart |= {"validation.guidance", "validation.steps"}  # of all prompts that have none of their own
    assert keys_of(Written({})).keys() <= names.keys() | of_run | apart
