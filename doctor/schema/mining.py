"""The schema of a trainer is mined from its checkout."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from pathlib import Path

from ..model.record import replace
from ..model.schema import Schema
from ..trainers import loaded, named, names
from .checkouts import NoCheckout, commit_of, recognised
from .sources import Sources


def mine(root: Path, trainer: str | None = None) -> tuple[Schema, Mapping[str, tuple[int, int]]]:
    """The schema of a checkout, and the (size, time) of every file and folder that it rests on.

    Raises NoCheckout for a folder that is none, or one of which nothing could be read.
    """
    name = trainer or recognised(root)
    known = named(name or "")
    if known is None or not known.miner:
        raise NoCheckout(f"{root} is no checkout of {', '.join(names())}.")
    miner: Callable[[Sources], Schema] = loaded(known.miner)
    sources = Sources(root)
    collecting = gc.isenabled()
    gc.disable()  # syntax trees are many small objects and all live to the end
    try:
        schema = miner(sources)
    finally:
        if collecting:
            gc.enable()
    if not schema.sections.get(""):
        unparsed = next(iter(sources.unparsed.items()), None)
        why = f": {unparsed[0]} does not parse ({unparsed[1]})" if unparsed else ""
        raise NoCheckout(f"{root} looks like {name}, but zdoctor found no key that it reads{why}.")
    return replace(schema, commit=commit_of(root), source=str(root)), sources.stamps
