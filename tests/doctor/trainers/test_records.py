"""The records of the trainers: each leads to modules that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from zdoctor.doctor.crash.table import of_room
from zdoctor.doctor.model.trainer import Trainer
from zdoctor.doctor.schema.tables import shipped
from zdoctor.doctor.trainers import loaded, named, names, trainer_called, trainer_of, trainers

each = pytest.mark.parametrize("trainer", trainers(), ids=names())


@each
def test_a_record_answers_for_its_room(trainer: Trainer) -> None:
    assert callable(loaded(trainer.reader).read)
    assert of_room(trainer.failures)
    assert callable(loaded(trainer.recipe).for_runner)
    for name in (trainer.miner, trainer.editor):
        place, _, function = name.partition(":")
        assert not name or callable(getattr(loaded(place), function))
    assert not trainer.writes or callable(loaded(trainer.writes).dataset_writes)
    assert trainer.marks and trainer.packages and not Path(trainer.marker).is_absolute()
    re.compile(trainer.in_logs)
    table = shipped(trainer.name)
    assert table is not None and table.trainer == trainer.name


def test_no_two_trainers_share_what_tells_them_apart() -> None:
    for one in ("name", "marker", "table"):
        assert len({getattr(trainer, one) for trainer in trainers()}) == len(trainers())


def test_trainers_are_found_by_what_people_call_them() -> None:
    assert trainer_called("MUSUBI") == "musubi-tuner" and trainer_called("AI-Toolkit") == "ai-toolkit"
    assert named("unheard-of") is None and trainer_called("unheard-of") == "unheard-of"
    assert trainer_of("zdoctor").name == "zdoctor" and trainer_of(None).name == ""
