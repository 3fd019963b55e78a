"""No trainer's key path stands as a string outside its own rooms: everything else reads a run's recipe."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from zdoctor.doctor.configs.written import Written
from zdoctor.doctor.model import Run
from zdoctor.doctor.model.recipe import SHORT_NAMES, Recipe, by_name
from zdoctor.doctor.trainers.ai_toolkit.recipe import keys_of

ROOT = Path(__file__).parents[1]
KEY_PATH = re.compile(r"(train|network|model|save|sample|datasets|logging)/[\w*/]+")
# Grows until only doctor/trainers, doctor/schema and the trainers' rooms of checks are left out.
CLEANED = (
    *("doctor/train", "doctor/memory", "doctor/families", "doctor/model", "doctor/probe", "doctor/examine"),
    *("doctor/crash", "doctor/commands", "doctor/apply", "doctor/configs", "reports"),
)
# A family's record says which settings its loader in ai-toolkit looks at.
KNOWN = {"doctor/families": re.compile(r"(model|train)/")}


@pytest.mark.parametrize("folder", CLEANED)
def test_no_key_path_outside_the_trainers_rooms(folder: str) -> None:
    known = KNOWN.get(folder)
    found = [
        f"{file.relative_to(ROOT)}:{node.lineno}: {node.value}"
        for file in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and KEY_PATH.fullmatch(node.value)
        and not (known is not None and known.match(node.value))
    ]
    assert found == []


def test_every_short_name_is_a_field_and_every_key_names_one() -> None:
    names = by_name(Recipe())
    assert names.keys() >= SHORT_NAMES.keys()
    of_run = set(Run.__match_args__)
    apart = {"validation_config", "validation.prompt_width", "validation.prompt_height", "checkpoints.push_to_hub"}
    apart |= {"precision.quantize", "precision.quantize_text_encoder"}
    assert keys_of(Written({})).keys() <= names.keys() | of_run | apart
