"""Steps of a run whose config counts in epochs, as kohya's trainers make them from their dataset."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ..model.run import Run
from .data import Item, batches


def steps_of_epoch(run: Run, items: Sequence[Item]) -> int:
    """Updates in which every picture is seen once for each of its repeats; mirrored copies do not count.

    Regularisation pictures are repeated until they are as many, so there are twice the batches.
    """
    plain = [item for item in items if not (item.regular or item.flip_x or item.flip_y)]
    times = 2 if any(item.regular for item in items) else 1
    return math.ceil(times * len(batches(plain, run.batch_size, 0, 0)) / run.gradient_accumulation)


def counted(run: Run, items: Sequence[Item]) -> Run:
    """The run with steps in place of epochs, of which it has steps, saves and samples."""
    epochs, saves, samples = (
        run.setting(key, 0) for key in ("train/epochs", "save/save_every_epochs", "sample/sample_every_epochs")
    )
    if not (epochs or saves or samples):
        return run
    length = steps_of_epoch(run, items)
    settings = dict(run.settings)
    if saves and run.save_every > 0:  # of both kinds
        settings["save/also_every"] = replace(settings["save/save_every_epochs"], value=saves * length)
    return replace(
        run,
        steps=epochs * length or run.steps,
        save_every=run.save_every if run.save_every > 0 else saves * length,
        sample_every=samples * length or run.sample_every,
        settings=settings,
    )
