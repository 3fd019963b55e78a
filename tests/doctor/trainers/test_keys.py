"""What a reader says of where a value came from: each name is one of a field."""

from __future__ import annotations

from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

from zdoctor.doctor.configs.written import Written
from zdoctor.doctor.model import Run
from zdoctor.doctor.model.field_names import SHORT_NAMES, by_name
from zdoctor.doctor.model.recipe import Recipe
from zdoctor.doctor.trainers.ai_toolkit.recipe import keys_of
from zdoctor.tests.doctor.trainers.test_every_key import BASES, run_of


def test_every_short_name_is_a_field_and_every_key_names_one() -> None:
    names = by_name(Recipe())
    assert names.keys() >= SHORT_NAMES.keys()
    of_run = set(Run.__match_args__)
    apart = {"validation_config", "validation.prompt_width", "validation.prompt_height", "checkpoints.push_to_hub"}
    apart |= {"precision.quantize", "precision.quantize_text_encoder", "recovery_adapter"}
    apart |= {"validation.guidance", "validation.steps"}  # of all prompts that have none of their own
    assert keys_of(Written({})).keys() <= names.keys() | of_run | apart


@pytest.mark.parametrize("name", BASES)
def test_every_field_of_a_recipe_has_its_type(name: str) -> None:
    trainer, _, tree = BASES[name]
    run = run_of(trainer, tree)
    assert run is not None
    groups = [one for one in vars(run.recipe).values() if hasattr(one, "__match_args__")]
    for record in (run.recipe, *groups, *run.recipe.datasets, *run.recipe.validation.prompts):
        hints = get_type_hints(type(record))
        assert [name for name, value in vars(record).items() if not fits(value, hints[name])] == []


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a type; what is inside of lists and mappings is not looked at."""
    kind = get_origin(hint) or hint
    if kind in (Union, UnionType):
        return any(fits(value, one) for one in get_args(hint))
    if kind is Literal:
        return value in get_args(hint)
    if kind is bool or isinstance(value, bool):
        return kind is bool and isinstance(value, bool)
    return isinstance(value, int | float) if kind is float else isinstance(value, kind)


def test_a_value_of_another_type_is_none() -> None:
    assert fits(1, float) and fits(None, str | None) and fits((), tuple[str, ...])
    assert not fits(True, float) and not fits(1, bool) and not fits("1", int | None)
