"""How many processes share a run: the cards that can take part, and whether a batch is enough for all."""

from __future__ import annotations

import os
import sys

from ..errors import UserError
from ..examine.examination import Examination
from ..model import Memory, Unknown
from ..model.cards import sharing, visible
from ..model.run import Run
from ..probe.live import LiveWorld


def _predicted(seen: Examination) -> list[Memory]:
    return [facts.memory for facts in seen.facts if isinstance(facts.memory, Memory)]


def too_large(seen: Examination, count: int) -> frozenset[str]:
    """The rule that says so of a base that one card cannot hold and `count` processes share out; else none."""
    known = _predicted(seen)
    tight = [memory for memory in known if memory.peak.total + memory.margin > memory.free]
    shared = tight and all(memory.only_fits_sharded(min(count, memory.cards)) for memory in tight)
    return frozenset({"MEM001"} if shared and count > 1 else ())


def process_count(seen: Examination) -> int:
    """One for each card that can take part, where the runs ask for "cuda"; else one."""
    runs = seen.reading.runs
    if not runs or not all(one.device == "cuda" for one in runs) or "RANK" in os.environ:
        return 1
    gpus = LiveWorld().gpus()
    seen_by_cuda = gpus if isinstance(gpus, Unknown) else visible(gpus, os.environ)
    cards = 1 if isinstance(seen_by_cuda, Unknown) else sharing(seen_by_cuda)
    # the first of the cards has room for it, and not each of them
    if cards > 1 and (full := next((memory for memory in _predicted(seen) if not memory.fits_all()), None)):
        print(
            f"zdoctor: one of the {cards} cards has only {full.least_free / 1e9:.1f} GB free (measured), and this "
            f"run takes {full.peak.total / 1e9:.1f} GB (computed). It trains on {full.device} alone; "
            "CUDA_VISIBLE_DEVICES chooses the cards.",
            file=sys.stderr,
        )
        return 1
    samples = min(map(_samples, runs))
    if samples < cards:
        print(
            f"zdoctor: batch_size x gradient_accumulation is {samples}, so of {cards} cards only {samples} can share "
            f"a step. With gradient_accumulation: {cards} all would (each step would see more pictures).",
            file=sys.stderr,
        )
    return max(1, min(cards, samples))


def _samples(one: Run) -> int:
    return one.recipe.batch_size * one.recipe.gradient_accumulation


def refuse_small_batch(one: Run, count: int) -> None:
    if _samples(one) < count:
        raise UserError(
            f"batch_size x gradient_accumulation is {_samples(one)}, which {count} processes cannot share.",
            f"Set gradient_accumulation: {count}, or start with --processes {_samples(one)}.",
        )
