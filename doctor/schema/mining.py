"""From a checkout to its Schema: which trainer it is, where it may lie, what it accepts."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..model.record import replace
from ..model.schema import Schema
from ..model.trainer import Trainer
from ..trainers import NAMES, TRAINERS, module, named
from .sources import Sources, commit_of

__all__ = ["commit_of", "find", "fingerprint", "mine", "recognised"]

HIGHEST = 12  # folders above a config that may be the checkout
VERSION = 2  # of the miners: what an older one mined is mined again


class NoCheckout(Exception):
    """A folder that is no checkout of a trainer that zdoctor knows, or that holds nothing it can read."""


def miner_of(trainer: Trainer) -> Callable[[Sources], Schema]:
    """The function that mines a trainer's checkout."""
    name, _, function = trainer.miner.partition(":")
    found: Callable[[Sources], Schema] = getattr(module(name), function)
    return found


def fingerprint() -> int:
    """What the notes of earlier minings depend on beside the checkout."""
    return VERSION


def recognised(root: Path) -> str | None:
    """The trainer whose checkout a folder is, None for any other folder."""
    return next((trainer.name for trainer in TRAINERS if (root / trainer.marker).is_file()), None)


def find(trainer: str, near: Sequence[str]) -> Path | None:
    """The checkout of a trainer at or above one of these folders, or cloned into one of them under its own name."""
    known = named(trainer)
    if known is None:
        return None
    for start in near:
        folder = Path(start)
        for place in (folder, *folder.parents[:HIGHEST], *(folder / name for name in known.clones)):
            if (place / known.marker).is_file():
                return place
    return None


def mine(root: Path, trainer: str | None = None) -> tuple[Schema, Mapping[str, tuple[int, int]]]:
    """The schema of a checkout, and the (size, time) of every file and folder that it rests on.

    Raises NoCheckout for a folder that is none, or one of which nothing could be read.
    """
    name = trainer or recognised(root)
    known = named(name or "")
    if known is None:
        raise NoCheckout(f"{root} is no checkout of {', '.join(NAMES)}.")
    sources = Sources(root)
    collecting = gc.isenabled()
    gc.disable()  # syntax trees are many small objects and all live to the end
    try:
        schema = miner_of(known)(sources)
    finally:
        if collecting:
            gc.enable()
    if not schema.sections.get(""):
        unparsed = next(iter(sources.unparsed.items()), None)
        why = f": {unparsed[0]} does not parse ({unparsed[1]})" if unparsed else ""
        raise NoCheckout(f"{root} looks like {name}, but zdoctor found no key that it reads{why}.")
    return replace(schema, commit=commit_of(root), source=str(root)), sources.stamps
