"""The batch sampler is a pure function of the seed and the batch's number, so that a resumed run agrees."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ...model.recipe import Recipe
from .training_items import TrainingItem


class BatchSampler:
    """The batches of a run, drawn without replacement epoch by epoch.

    With regularisation items every other step is theirs, as in ai-toolkit.
    """

    def __init__(self, recipe: Recipe, items: Sequence[TrainingItem], seed: int) -> None:
        self.recipe = recipe
        self.seed = seed
        self.plain = _Turns([item for item in items if not item.regular], recipe.batch_size, seed)
        regular = [item for item in items if item.regular]
        self.regular = _Turns(regular, recipe.batch_size, seed) if regular else None
        # how many of the steps before each step are the regularisation items'
        self.before = [0]

    def epoch(self, step: int) -> int:
        """Returns how often the items were gone through before `step`, regularisation items apart."""
        return (step - self._before(step)) * self.recipe.gradient_accumulation // self.plain.length

    def batch(self, index: int) -> list[TrainingItem]:
        """Returns the items of batch `index`, counted from 0 over the whole run."""
        recipe = self.recipe
        step, part = divmod(index, recipe.gradient_accumulation)
        theirs = self._before(step)
        if self.regular is not None and self._before(step + 1) > theirs:
            return self.regular.get(theirs * recipe.gradient_accumulation + part)
        return self.plain.get((step - theirs) * recipe.gradient_accumulation + part)

    def _before(self, step: int) -> int:
        while len(self.before) <= step:
            self.before.append(self.before[-1] + self._is_theirs(len(self.before) - 1))
        return self.before[step]

    def _is_theirs(self, step: int) -> bool:
        """Even steps, but not those at which ai-toolkit saves or samples first."""
        recipe = self.recipe
        first = recipe.validation.first_step
        busy = [
            recipe.checkpoints.every,
            0 if recipe.validation.disabled or step < first else recipe.validation.every,
        ]
        return self.regular is not None and step % 2 == 0 and not any(n > 0 and step % n == 0 for n in busy)


class _Turns:
    """Batches of `items`, epoch after epoch."""

    def __init__(self, items: Sequence[TrainingItem], size: int, seed: int) -> None:
        self.items = items
        self.size = size
        self.seed = seed
        self.epoch = 0
        self.order = epoch_batches(items, size, seed, 0)
        self.length = len(self.order)

    def get(self, number: int) -> list[TrainingItem]:
        epoch, place = divmod(number, self.length)
        if epoch != self.epoch:
            self.order, self.epoch = epoch_batches(self.items, self.size, self.seed, epoch), epoch
        return [self.items[i] for i in self.order[place]]


def epoch_batches(items: Sequence[TrainingItem], size: int, seed: int, epoch: int) -> list[list[int]]:
    """Returns the batches of one epoch as indices into `items`: shuffled, one image size a batch, every item in one.

    A batch that a size cannot fill is filled up with its own items again. Those with other control images are kept
    apart, and `prior` ones from others: a batch has one kind of input and of target.
    """
    order = random.Random(f"{seed} {epoch}")
    by_size: dict[tuple[object, ...], list[int]] = {}
    for index, item in enumerate(items):
        sizes = tuple((one.width, one.height) for one in item.controls)
        by_size.setdefault((item.width, item.height, sizes, item.prior, item.apart), []).append(index)
    result: list[list[int]] = []
    for indices in by_size.values():
        order.shuffle(indices)
        for start in range(0, len(indices), size):
            batch = indices[start : start + size]
            result.append([batch[i % len(batch)] for i in range(size)])
    order.shuffle(result)
    return result


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
