"""The trainers whose configs are read: one room each, with how its config is read, what it trains, its schema, and
its failures in a log. Pure, and light: importing this loads the records alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from ..model.trainer import OF_RUNNER, RUNNER, Trainer
from .ai_toolkit import AI_TOOLKIT
from .kohya import MUSUBI_TUNER, SD_SCRIPTS
from .simpletuner import SIMPLETUNER

__all__ = ["Trainer", "add", "loaded", "named", "names", "trainer_called", "trainer_of", "trainers"]

_UNKNOWN = Trainer(name="", reader="", marks=())


def registry(trainers: Iterable[Trainer]) -> dict[str, Trainer]:
    """The records by all that they are called, in lower case. Raises ValueError for a name that two have, or none."""
    found: dict[str, Trainer] = {}
    for trainer in trainers:
        for word in (trainer.name.lower(), *trainer.called):
            if word in ("", RUNNER, *found):
                raise ValueError(f"two trainers are called {word!r}" if word else "a trainer has no name")
            found[word] = trainer
    return found


# Whose config a text is: the first one whose marks fit counts.
_TRAINERS = registry((AI_TOOLKIT, MUSUBI_TUNER, SD_SCRIPTS, SIMPLETUNER))


def add(more: Iterable[Trainer]) -> None:
    """Make more trainers known, as a plug-in brings them. Raises ValueError where a name is taken, and adds none."""
    _TRAINERS.update(registry((*trainers(), *more)))


def trainers() -> tuple[Trainer, ...]:
    """Every trainer that has a record."""
    return tuple({trainer.name: trainer for trainer in _TRAINERS.values()}.values())


def names() -> tuple[str, ...]:
    return tuple(trainer.name for trainer in trainers())


def named(name: str) -> Trainer | None:
    """The trainer of this name, or one that people use for it, in any case; None where there is none."""
    return _TRAINERS.get(name.lower())


def trainer_of(name: str | None) -> Trainer:
    """The record of the trainer that a run or config names; one of a trainer that is not known has no habits."""
    return OF_RUNNER if name == RUNNER else named(name or "") or _UNKNOWN


def trainer_called(word: str) -> str:
    """The name of the trainer that somebody means by `word`; the word itself where there is none."""
    found = named(word)
    return word if found is None else found.name


def loaded(place: str) -> Any:
    """What a record names: a module, or as "module:function" what is in it."""
    module, _, function = place.partition(":")
    found = import_module(module)
    return getattr(found, function) if function else found
