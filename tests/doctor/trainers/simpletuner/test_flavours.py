"""A flavour of another model than the records of its model_family is nobody's, and no slip."""

from __future__ import annotations

import pytest

from zdoctor.doctor.families import families
from zdoctor.tests.doctor.trainers.simpletuner.runs import run_of


@pytest.mark.parametrize(
    ("family", "flavour"),
    [("wan", "i2v-14b-2.1"), ("wan", "vace-14b-2.1"), ("ltxvideo2", "2.3-dev"), ("sdxl", "refiner-1.0")],
)
def test_another_model_of_the_family_is_not_judged_as_the_first(family: str, flavour: str) -> None:
    run = run_of({"model_family": family, "model_flavour": flavour})
    assert run.recipe.architecture not in {None, *(one.name for one in families())}


def test_a_recorded_flavour_is() -> None:
    assert run_of({"model_family": "wan", "model_flavour": "t2v-480p-14b-2.1"}).recipe.architecture == "wan21"
