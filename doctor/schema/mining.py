"""From a checkout to its Schema: which trainer it is, where it may lie, what it accepts."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..model.record import replace
from ..model.schema import Schema
from ..trainers.ai_toolkit import schema as ai_toolkit
from ..trainers.kohya import schema as kohya
from ..trainers.simpletuner import schema as simpletuner
from .sources import Sources, commit_of

__all__ = ["TRAINERS", "commit_of", "find", "fingerprint", "mine", "recognised"]

HIGHEST = 12  # folders above a config that may be the checkout
VERSION = 2  # of the miners: what an older one mined is mined again
# trainer -> (a file that only its checkout has, the miner, folder names under which people clone it)
TRAINERS: Mapping[str, tuple[str, Callable[[Sources], Schema], tuple[str, ...]]] = {
    "ai-toolkit": (ai_toolkit.MARKER, ai_toolkit.mine, ("ai-toolkit",)),
    "SimpleTuner": (simpletuner.MARKER, simpletuner.mine, ("SimpleTuner",)),
    "sd-scripts": (kohya.SD_MARKER, kohya.mine_sd_scripts, ("sd-scripts",)),
    "musubi-tuner": (kohya.MUSUBI_MARKER, kohya.mine_musubi, ("musubi-tuner",)),
}


class NoCheckout(Exception):
    """A folder that is no checkout of a trainer that zdoctor knows, or that holds nothing it can read."""


def fingerprint() -> int:
    """What the notes of earlier minings depend on beside the checkout."""
    return VERSION


def recognised(root: Path) -> str | None:
    """The trainer whose checkout a folder is, None for any other folder."""
    return next((trainer for trainer, (marker, _, _) in TRAINERS.items() if (root / marker).is_file()), None)


def find(trainer: str, near: Sequence[str]) -> Path | None:
    """The checkout of a trainer at or above one of these folders, or cloned into one of them under its own name."""
    if trainer not in TRAINERS:
        return None
    marker, _, names = TRAINERS[trainer]
    for start in near:
        folder = Path(start)
        for place in (folder, *folder.parents[:HIGHEST], *(folder / name for name in names)):
            if (place / marker).is_file():
                return place
    return None


def mine(root: Path, trainer: str | None = None) -> tuple[Schema, Mapping[str, tuple[int, int]]]:
    """The schema of a checkout, and the (size, time) of every file and folder that it rests on.

    Raises NoCheckout for a folder that is none, or one of which nothing could be read.
    """
    name = trainer or recognised(root)
    if name is None or name not in TRAINERS:
        raise NoCheckout(f"{root} is no checkout of {', '.join(TRAINERS)}.")
    sources = Sources(root)
    collecting = gc.isenabled()
    gc.disable()  # syntax trees are many small objects and all live to the end
    try:
        schema = TRAINERS[name][1](sources)
    finally:
        if collecting:
            gc.enable()
    if not schema.sections.get(""):
        unparsed = next(iter(sources.unparsed.items()), None)
        why = f": {unparsed[0]} does not parse ({unparsed[1]})" if unparsed else ""
        raise NoCheckout(f"{root} looks like {name}, but zdoctor found no key that it reads{why}.")
    return replace(schema, commit=commit_of(root), source=str(root)), sources.stamps
