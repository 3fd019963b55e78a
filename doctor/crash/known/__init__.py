"""Failures that no rule looks for beforehand, or not only: what they mean, what to do, and what not to do.

`rule` is the rule that finds the same cause before the run, where there is one. The first that fits counts.
"""

from __future__ import annotations

from ...trainers.ai_toolkit import failures as ai_toolkit
from ...trainers.kohya import failures as kohya
from ...trainers.simpletuner import failures as simpletuner
from . import card, machine, memory, packages, scripts, weights

KNOWN = (
    *ai_toolkit.KNOWN,
    *kohya.KNOWN,
    *simpletuner.KNOWN,
    *scripts.KNOWN,
    *weights.KNOWN,
    *memory.KNOWN,
    *packages.KNOWN,
    *card.KNOWN,
    *machine.KNOWN,
)
# What a trainer prints without an exception: it stops, or goes on and trains nothing of use.
LINES = tuple(known for known in KNOWN if known.line)
