"""Failures that no rule looks for beforehand, or not only: what they mean, what to do, and what not to do.

`rule` is the rule that finds the same cause before the run, where there is one. The first that fits counts.
"""

from __future__ import annotations

from functools import cache

from ...model.crashes import Known
from ...trainers import loaded, trainers
from . import (
    card,
    checkpoints,
    hub,
    installs,
    kernels,
    launchers,
    libraries,
    machine,
    memory,
    other_trainers,
    packages,
    scripts,
    tensors,
    versions,
    weights,
)

_ROOMLESS = (
    scripts,
    other_trainers,
    hub,
    tensors,
    weights,
    checkpoints,
    memory,
    kernels,
    versions,
    libraries,
    installs,
    packages,
    card,
    machine,
)


@cache
def known() -> tuple[Known, ...]:
    """Those of the trainers' rooms come first. Asked for only when the plug-ins are there."""
    rooms = dict.fromkeys(trainer.failures for trainer in trainers() if trainer.failures)
    own = (one for room in (*map(loaded, rooms), *_ROOMLESS) for one in room.KNOWN)
    return (*own, *installs.LAST, *launchers.KNOWN)


@cache
def lines() -> tuple[Known, ...]:
    """What a trainer prints without an exception: it stops, or goes on and trains nothing of use."""
    return tuple(one for one in known() if one.line)
