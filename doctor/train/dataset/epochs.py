"""A config that counts in epochs becomes one that counts in steps, as kohya's trainers do it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ...model.recipe import Recipe
from .training_items import TrainingItem, epoch_batches


def steps_per_epoch(recipe: Recipe, items: Sequence[TrainingItem]) -> int:
    """Returns the updates in which every image is seen once for each repeat; mirrored copies do not count.

    Regularisation pictures are seen so often that they are as many, and share batches, as in sd-scripts.
    """
    seen = [item for item in items if not (item.flip_x or item.flip_y)]
    sets: dict[str, tuple[list[TrainingItem], list[TrainingItem]]] = {item.apart: ([], []) for item in seen}
    for item in seen:
        sets[item.apart][item.regular].append(item)
    made = [one for plain, regular in sets.values() for one in (*plain, *_as_many(regular, len(plain)))]
    return math.ceil(len(epoch_batches(made, recipe.batch_size, 0, 0)) / recipe.gradient_accumulation)


def _as_many(regular: Sequence[TrainingItem], count: int) -> list[TrainingItem]:
    """Picture after picture with its repeats until they are `count` or more, then each once more, and so on."""
    repeats = Counter(item.picture.file for item in regular)
    pictures = list({item.picture.file: item for item in regular}.values())
    made: list[TrainingItem] = []
    turn = 0
    while pictures and len(made) < count:
        item = pictures[turn % len(pictures)]
        made += [item] * (repeats[item.picture.file] if turn < len(pictures) else 1)
        turn += 1
    return made


def epochs_to_steps(recipe: Recipe, items: Sequence[TrainingItem]) -> Recipe:
    """Returns the recipe with steps, saves and samples in place of epochs."""
    saves, samples = recipe.checkpoints, recipe.validation
    if not (recipe.epochs or saves.every_epochs or samples.every_epochs):
        return recipe
    length = steps_per_epoch(recipe, items)
    if saves.every_epochs:  # of both kinds, or of this one
        apart = saves.every_epochs * length
        saves = replace(saves, also_every=apart) if saves.every > 0 else replace(saves, every=apart)
    return replace(
        recipe,
        steps=recipe.epochs * length or recipe.steps,
        checkpoints=saves,
        validation=replace(samples, every=samples.every_epochs * length or samples.every),
    )
