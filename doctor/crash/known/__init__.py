"""Failures that no rule looks for beforehand, or not only: what they mean, what to do, and what not to do.

`rule` is the rule that finds the same cause before the run, where there is one. The first that fits counts.
"""

from __future__ import annotations

from ...model.crashes import Known
from ...trainers import TRAINERS, module
from . import card, machine, memory, packages, scripts, weights

_OF_TRAINERS = [module(name) for name in dict.fromkeys(trainer.failures for trainer in TRAINERS if trainer.failures)]
KNOWN: tuple[Known, ...] = (
    *(known for room in _OF_TRAINERS for known in room.KNOWN),
    *scripts.KNOWN,
    *weights.KNOWN,
    *memory.KNOWN,
    *packages.KNOWN,
    *card.KNOWN,
    *machine.KNOWN,
)
# What a trainer prints without an exception: it stops, or goes on and trains nothing of use.
LINES = tuple(known for known in KNOWN if known.line)
