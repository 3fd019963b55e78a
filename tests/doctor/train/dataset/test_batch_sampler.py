"""Steps of regularisation items come where ai-toolkit has them, and each set goes on where it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from zdoctor.doctor.train.dataset.batch_sampler import BatchSampler
from zdoctor.doctor.train.dataset.images import DatasetImage
from zdoctor.doctor.train.dataset.training_items import TrainingItem

from ..patient import run_with, written


def items(count: int, regular: int = 0) -> list[TrainingItem]:
    pictures = [DatasetImage(Path(str(number)), 64, 64, str(number), "") for number in range(count + regular)]
    return [TrainingItem(p, 64, 64, "", "", 0.0, regular=number >= count) for number, p in enumerate(pictures)]


@pytest.mark.parametrize("accumulation", [1, 2])
def test_every_item_has_its_turn_in_each_epoch(accumulation: int) -> None:
    order = BatchSampler(run_with(batch_size=2, gradient_accumulation=accumulation).recipe, items(6), 7)
    seen = [[item.picture.digest for item in order.batch(index)] for index in range(6)]
    for epoch in (seen[:3], seen[3:]):
        assert sorted(digest for batch in epoch for digest in batch) == [str(number) for number in range(6)]
    assert [order.epoch(step) for step in (0, 3, 6)] == [0, accumulation, 2 * accumulation]
    later = BatchSampler(order.recipe, items(6), 7)
    assert [item.picture.digest for item in later.batch(5)] == seen[5]  # no need to have drawn the others


def test_samples_that_begin_late_give_no_step_away_before() -> None:
    settings = written(sample__sample_start_step=6)
    run = run_with(batch_size=1, save_every=0, sample_every=2, disable_sampling=False, settings=settings)
    order = BatchSampler(run.recipe, items(3, regular=2), 7)
    assert [step for step in range(12) if order.batch(step)[0].regular] == [0, 2, 4]


@pytest.mark.parametrize("accumulation", [1, 2])
def test_every_other_step_is_the_regularisation_items(accumulation: int) -> None:
    """Not step 0, 4 and 8, at which a run that saves every 4 steps saves first; nor 6, at which it samples."""
    run = run_with(
        batch_size=1, gradient_accumulation=accumulation, save_every=4, sample_every=6, disable_sampling=False
    )
    order = BatchSampler(run.recipe, items(3, regular=2), 7)
    batches = [order.batch(index) for index in range(12 * accumulation)]
    steps = [batches[index : index + accumulation] for index in range(0, len(batches), accumulation)]
    kinds = [{item.regular for batch in step for item in batch} for step in steps]
    assert [step for step, kind in enumerate(kinds) if kind == {True}] == [2, 10]
    assert all(len(kind) == 1 for kind in kinds)
    theirs = [item.picture.digest for step in steps for batch in step for item in batch if item.regular]
    assert sorted(theirs[:2]) == ["3", "4"]
    ours = [item.picture.digest for step in steps for batch in step for item in batch if not item.regular]
    assert all(sorted(ours[i : i + 3]) == ["0", "1", "2"] for i in range(0, len(ours) - 2, 3))
