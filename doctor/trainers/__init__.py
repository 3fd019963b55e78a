"""The trainers whose configs are read: one room each, with how its config is read, what it trains, its schema, and
its failures in a log. Pure, and light: importing this loads the records alone.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

from ..model.trainer import OF_RUNNER, RUNNER, Trainer
from .ai_toolkit import AI_TOOLKIT
from .kohya import MUSUBI_TUNER, SD_SCRIPTS
from .simpletuner import SIMPLETUNER

__all__ = ["NAMES", "TRAINERS", "Trainer", "loaded", "module", "named", "trainer_called", "trainer_of"]

# Whose config a text is: the first one whose marks fit counts.
TRAINERS = (AI_TOOLKIT, MUSUBI_TUNER, SD_SCRIPTS, SIMPLETUNER)
NAMES = tuple(trainer.name for trainer in TRAINERS)
_CALLED = {word.lower(): trainer for trainer in TRAINERS for word in (trainer.name, *trainer.called)}
_UNKNOWN = Trainer("")


def named(name: str) -> Trainer | None:
    """The trainer of this name, or one that people use for it, in any case; None where there is none."""
    return _CALLED.get(name.lower())


def trainer_of(name: str | None) -> Trainer:
    """The record of the trainer that a run or config names; one of a trainer that is not known has no habits."""
    return OF_RUNNER if name == RUNNER else named(name or "") or _UNKNOWN


def trainer_called(word: str) -> str:
    """The name of the trainer that somebody means by `word`; the word itself where there is none."""
    found = named(word)
    return word if found is None else found.name


def loaded(name: str) -> Any:
    """What a record names as "module:function", of a trainer's room."""
    place, _, function = name.partition(":")
    return getattr(module(place), function)


def module(name: str) -> ModuleType:
    """A module of a trainer's room, by the name that its record has for it."""
    return import_module(f".{name}", __name__)
