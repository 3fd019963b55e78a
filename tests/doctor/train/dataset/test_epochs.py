"""A run that counts in epochs has as many steps, saves and samples as kohya's trainers make of its dataset."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from zdoctor.doctor.train.dataset.batch_sampler import epoch_batches, epochs_to_steps, steps_per_epoch
from zdoctor.doctor.train.dataset.training_items import read_training_items
from zdoctor.doctor.train.settings.refuse import refuse
from zdoctor.doctor.train.training_loop import due
from zdoctor.tests.changes import changed

from ..patient import DATASET, Recorder, go, run_with


@pytest.mark.parametrize(
    ("batch", "accumulation", "repeats", "flips", "steps"),
    [
        (1, 1, 1, False, 6),
        (4, 1, 1, False, 2),  # the last batch is not full
        (1, 4, 1, False, 2),  # nor is the last accumulation
        (4, 2, 3, False, 3),
        (1, 1, 1, True, 6),  # each picture once, mirrored or not
    ],
)
def test_steps_of_an_epoch(
    circles: Path, batch: int, accumulation: int, repeats: int, flips: bool, steps: int
) -> None:
    dataset = replace(DATASET, repeats=repeats, flip_x=flips)
    run = run_with(datasets=(dataset,), batch_size=batch, gradient_accumulation=accumulation, steps=0, save_every=0)
    items = read_training_items(run.recipe, {"datasets/0": str(circles)}, 16)
    assert steps_per_epoch(run.recipe, items) == steps
    made = epochs_to_steps(changed(run, epochs=3, checkpoints={"every_epochs": 2}).recipe, items)
    assert (made.steps, made.checkpoints.every, made.validation.every) == (
        3 * steps,
        2 * steps,
        run.recipe.validation.every,
    )
    both = epochs_to_steps(changed(run, epochs=3, checkpoints={"every": 5, "every_epochs": 2}).recipe, items)
    assert (both.checkpoints.every, both.checkpoints.also_every) == (5, 2 * steps)
    saves_only = epochs_to_steps(changed(run, steps=7, checkpoints={"every_epochs": 1}).recipe, items)
    assert (saves_only.steps, saves_only.checkpoints.every) == (7, steps)


def test_regularisation_pictures_double_an_epoch(circles: Path) -> None:
    regular = replace(DATASET, key="datasets/1", is_regularisation=True)
    run = run_with(datasets=(DATASET, regular), batch_size=1)
    items = read_training_items(run.recipe, {"datasets/0": str(circles), "datasets/1": str(circles)}, 16)
    assert steps_per_epoch(run.recipe, items) == 12


def test_datasets_apart_share_no_batches(circles: Path) -> None:
    """As [[datasets]] of kohya's trainers: each has batches of its own that are not full."""
    one, other = (replace(DATASET, key=f"datasets/{n}", batches_of=f"datasets/{n}") for n in (0, 1))
    run = run_with(datasets=(one, other), batch_size=4)
    folders = {"datasets/0": str(circles), "datasets/1": str(circles)}
    items = read_training_items(run.recipe, folders, 16)
    assert steps_per_epoch(run.recipe, items) == 4
    assert all(len({items[i].apart for i in batch}) == 1 for batch in epoch_batches(items, 4, 0, 0))
    together = changed(run, datasets=(DATASET, replace(DATASET, key="datasets/1")))
    assert steps_per_epoch(run.recipe, read_training_items(together.recipe, folders, 16)) == 3


@pytest.mark.parametrize(
    ("pictures", "repeats", "steps"),
    [
        (1, 1, 12),  # seen six times
        (6, 4, 14),  # of these only two are seen, four times each
        (4, 1, 12),
    ],
)
def test_regularisation_pictures_are_as_many(
    circles: Path, tmp_path: Path, pictures: int, repeats: int, steps: int
) -> None:
    """sd-scripts' count: its loop ends with the picture that makes them as many, of one dataset only."""
    for file in sorted(circles.glob("*.png"))[:pictures]:
        shutil.copy(file, tmp_path)
    regular = replace(DATASET, key="datasets/1", is_regularisation=True, repeats=repeats)
    other = replace(DATASET, key="datasets/2", batches_of="2")
    run = run_with(datasets=(DATASET, regular, other), batch_size=1)
    folders = {"datasets/0": str(circles), "datasets/1": str(tmp_path), "datasets/2": str(circles)}
    assert steps_per_epoch(run.recipe, read_training_items(run.recipe, folders, 16)) == steps + 6


def test_two_epochs_train_save_and_are_finished(tiny: Path, circles: Path, tmp_path: Path) -> None:
    run = run_with(steps=0, epochs=2, batch_size=6, checkpoints={"every": 0, "every_epochs": 1})
    assert not refuse(run) and refuse(changed(run, epochs=0))
    assert go(run, tiny, circles, tmp_path).steps == 2
    assert sorted(path.name for path in tmp_path.glob("*.safetensors")) == [
        "circles.safetensors",
        "circles_000000001.safetensors",
    ]
    again = Recorder()
    assert go(run, tiny, circles, tmp_path, progress=again).stopped == "finished"
    assert "2 steps of 2 are done" in " ".join(again.notes)
    assert not any("transformer" in phase for phase in again.phases)


def test_saves_of_both_kinds() -> None:
    run = run_with(steps=12, checkpoints={"every": 5, "also_every": 4}, sample_every=0)
    assert [step for step in range(1, 13) if due(run.recipe, step)[0]] == [4, 5, 8, 10]
