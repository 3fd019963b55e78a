"""What makes a run fit: the smallest sets of settings, the largest value of one, the smallest card. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..model import Alternative
from ..model.plans import TRAINING_EFFECTS
from ..model.record import replace
from .case import Case
from .ladder import steps_for
from .phases import highest_of, host_peak_of, peak_of

_MOST = 3  # settings of a set
# The cards that are sold and rented: each has as many thousand million bytes as its name says, or more, of which the
# driver takes up to a fiftieth (Tesla T4: 16.1 thousand million, 15.8 free).
CARDS = tuple(size * 10**9 for size in (6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 80, 96, 141, 180))


def fitting(case: Case, free: int, host_free: int) -> list[Alternative]:
    """The smallest sets of changes by which the run fits, those that leave the result alone first.

    None has another of the list in it. Each is on top of the run as it is written.
    """
    steps = steps_for(case)
    if steps is None:
        return []
    host_most, now = max(host_free, host_peak_of(case)), highest_of(case)
    found: list[tuple[frozenset[Any], Alternative]] = []
    level: list[tuple[frozenset[Any], tuple[Any, ...], int, Case, int]] = [(frozenset(), (), 0, case, now)]
    for _ in range(_MOST):
        following: dict[frozenset[Any], tuple[frozenset[Any], tuple[Any, ...], int, Case, int]] = {}
        for names, settings, worst, at, before in level:
            for written, effect, changed in steps(at):
                every = names | {(key, str(value)) for key, value in written}
                if every in following or any(small <= every for small, _ in found):
                    continue
                high = highest_of(changed)
                if high >= before or host_peak_of(changed) > host_most:
                    continue
                harm = max(worst, TRAINING_EFFECTS.index(effect))
                together = (*settings, *written)
                if high <= free:
                    change = Alternative(together, TRAINING_EFFECTS[harm], peak_of(changed), high)
                    found.append((every, change))
                else:
                    following[every] = (every, together, harm, changed, high)
        level = list(following.values())
    smallest: dict[frozenset[str], Alternative] = {}  # of a key's values the first, which changes least
    for every, one in found:
        if not any(other < every for other, _ in found):
            smallest.setdefault(frozenset(key for key, _ in one.settings), one)
    return sorted(
        smallest.values(), key=lambda one: (TRAINING_EFFECTS.index(one.effect), len(one.settings), -one.peak)
    )


def _of_resolution(case: Case, pixels: int) -> Case:
    datasets = tuple(
        replace(
            dataset,
            resolutions=(pixels,),
            buckets=None if dataset.buckets is None else dataset.buckets._replace(width=pixels, height=pixels),
        )
        for dataset in case.recipe.datasets
    )
    return case.with_recipe(datasets=datasets)


def _of_batch(case: Case, size: int) -> Case:
    return case.with_recipe(batch_size=size)


def _of_rank(case: Case, rank: int) -> Case:
    return case.with_recipe(network=replace(case.recipe.network, rank=rank))


# What may be solved for: the step between values, the largest that is tried, and the case with one.
SOLVED: Mapping[str, tuple[int, int, Callable[[Case, int], Case]]] = {
    "resolution": (64, 4096, _of_resolution),
    "batch_size": (1, 256, _of_batch),
    "rank": (1, 1024, _of_rank),
}


def largest(case: Case, key: str, free: int) -> int | None:
    """The largest value of a key of SOLVED with which the run fits; None where none does."""
    step, most, with_value = SOLVED[key]

    def fits(count: int) -> bool:
        return highest_of(with_value(case, count * step)) <= free

    low, high = 0, most // step  # the highest grows with each of them
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low * step or None


def smallest_card(peak: int) -> int:
    """The bytes of the smallest of CARDS on which a run with this peak fits; 0 where none is large enough."""
    return next((size for size in CARDS if peak <= size - size // 50), 0)
