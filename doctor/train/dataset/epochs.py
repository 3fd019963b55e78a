"""Steps of a run whose config counts in epochs, as kohya's trainers make them from their dataset."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ...model.run import Run
from .training_items import Item, batches


def steps_of_epoch(run: Run, items: Sequence[Item]) -> int:
    """Updates in which every picture is seen once for each of its repeats; mirrored copies do not count.

    Regularisation pictures are seen so often that they are as many, and share batches, as in sd-scripts.
    """
    seen = [item for item in items if not (item.flip_x or item.flip_y)]
    sets: dict[str, tuple[list[Item], list[Item]]] = {item.apart: ([], []) for item in seen}
    for item in seen:
        sets[item.apart][item.regular].append(item)
    made = [one for plain, regular in sets.values() for one in (*plain, *_as_many(regular, len(plain)))]
    return math.ceil(len(batches(made, run.recipe.batch_size, 0, 0)) / run.recipe.gradient_accumulation)


def _as_many(regular: Sequence[Item], count: int) -> list[Item]:
    """Picture after picture with its repeats until they are `count` or more, then each once more, and so on."""
    repeats = Counter(item.picture.file for item in regular)
    pictures = list({item.picture.file: item for item in regular}.values())
    made: list[Item] = []
    turn = 0
    while pictures and len(made) < count:
        item = pictures[turn % len(pictures)]
        made += [item] * (repeats[item.picture.file] if turn < len(pictures) else 1)
        turn += 1
    return made


def counted(run: Run, items: Sequence[Item]) -> Run:
    """The run with steps in place of epochs, of which it has steps, saves and samples."""
    recipe, saves, samples = run.recipe, run.recipe.checkpoints, run.recipe.validation
    if not (recipe.epochs or saves.every_epochs or samples.every_epochs):
        return run
    length = steps_of_epoch(run, items)
    if saves.every_epochs:  # of both kinds, or of this one
        apart = saves.every_epochs * length
        saves = replace(saves, also_every=apart) if saves.every > 0 else replace(saves, every=apart)
    return replace(
        run,
        recipe=replace(
            recipe,
            steps=recipe.epochs * length or recipe.steps,
            checkpoints=saves,
            validation=replace(samples, every=samples.every_epochs * length or samples.every),
        ),
    )
