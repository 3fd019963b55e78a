"""Failures that no rule looks for beforehand, or not only: what they mean, what to do, and what not to do.

`rule` is the rule that finds the same cause before the run, where there is one. The first that fits counts.
"""

from __future__ import annotations

from . import ai_toolkit, card, kohya, machine, memory, packages, scripts, simpletuner, weights

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
