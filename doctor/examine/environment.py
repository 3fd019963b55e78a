"""The environment alone, without a config: its packages, its cards, and what a checkout at hand asks of them."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..configs.reading import Reading
from ..model import Config, Run, Schema
from ..model.record import replace
from ..probe.world import Stat, World
from ..rules import Rule
from ..schema.checkouts import HIGHEST
from ..trainers import trainers
from .examination import Examination, python_of
from .judged import by_area
from .look import Look

FACTS = frozenset(("environment", "installed", "gpus", "system", "host", "run"))


def examine_environment(world: World, rules: Sequence[Rule], trainer: str | None = None) -> Examination:
    """What keeps this environment from training. `trainer` is whose it is; else that of the checkout at hand."""
    started = time.perf_counter()
    whose = trainer or _at_hand(world)
    config = Config("", "", whose)
    run = Run(whose or "", "", "", 0, "other", "", "")
    asked = tuple(rule for rule in rules if FACTS.issuperset(rule.needs) and _looks(rule) and rule.suits(whose))
    report, facts = Look(world, deep=False, microstep=None).with_fixes(asked, config, run)
    report = replace(
        by_area(report, asked),
        trainer=whose,
        elapsed_ms=(time.perf_counter() - started) * 1000,
        machine=world.system.recorded,
        trainable=False,
        python=python_of((facts,)),
    )
    return Examination(report, (facts,), Reading(config, (run,)), asked, config)


def _looks(rule: Rule) -> bool:
    return not {"environment", "installed", "host"}.isdisjoint(rule.needs)


def _at_hand(world: World) -> str | None:
    """The trainer whose checkout the working directory is or lies in, else one whose checkout is near."""
    place, around = world.system.cwd, list[str]()
    for _ in range(HIGHEST):
        around += (one.name for one in trainers() if isinstance(world.stat(world.below(place, one.marker)), Stat))
        place = world.parent(place)
    candidates = dict.fromkeys((*around, *(one.name for one in trainers())))
    return next((name for name in candidates if isinstance(world.schema(name, (world.system.cwd,)), Schema)), None)
