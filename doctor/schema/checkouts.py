"""Checkouts of trainers: whose a folder is, where one may lie, which commit it holds, which keys it takes."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..model.record import replace
from ..model.schema import Schema
from ..trainers import loaded, named, names, trainers

HIGHEST = 12  # folders above a config that may be the checkout


class NoCheckout(Exception):
    """A folder that is no checkout of a trainer that zdoctor knows, or that holds nothing it can read."""


def recognised(root: Path) -> str | None:
    """The trainer whose checkout a folder is, None for any other folder."""
    return next((trainer.name for trainer in trainers() if (root / trainer.marker).is_file()), None)


def find(trainer: str, near: Sequence[str]) -> Path | None:
    """The checkout of a trainer at or above one of these folders, or beside or in one of them under its own name."""
    known = named(trainer)
    if known is None:
        return None
    for start in map(Path, near):
        for place in (start, *start.parents[:HIGHEST], start / known.name, start.parent / known.name):
            if (place / known.marker).is_file():
                return place
    return None


def commit_of(root: Path) -> str:
    """The commit that is checked out, read from the .git folder; "" where it cannot be known."""
    try:
        git = root / ".git"
        if git.is_file():  # a worktree or a submodule names its folder
            git = root / git.read_text("utf-8").partition("gitdir:")[2].strip()
        head = (git / "HEAD").read_text("ascii").strip()
        if not head.startswith("ref:"):
            return _hex(head)
        name = head[4:].strip()
        common = git / (git / "commondir").read_text("utf-8").strip() if (git / "commondir").is_file() else git
        for folder in (git, common):
            if (folder / name).is_file():
                return _hex((folder / name).read_text("ascii").strip())
        for line in (common / "packed-refs").read_text("utf-8").splitlines():
            digest, _, reference = line.partition(" ")
            if reference == name:
                return _hex(digest)
    except (OSError, ValueError):
        pass
    return ""


def _hex(text: str) -> str:
    return text if len(text) in (40, 64) and set(text) <= set("0123456789abcdef") else ""


def mine(root: Path, trainer: str | None = None) -> tuple[Schema, Mapping[str, tuple[int, int]]]:
    """The schema of a checkout, and the (size, time) of every file and folder that it rests on.

    Raises NoCheckout for a folder that is none, or one of which nothing could be read.
    """
    name = trainer or recognised(root)
    known = named(name or "")
    if known is None or not known.miner:
        raise NoCheckout(f"{root} is no checkout of {', '.join(names())}.")
    from ..mining.sources import Sources

    sources = Sources(root)
    collecting = gc.isenabled()
    gc.disable()  # syntax trees are many small objects and all live to the end
    try:
        schema: Schema = loaded(known.miner)(sources)
    finally:
        if collecting:
            gc.enable()
    if not schema.sections.get(""):
        unparsed = next(iter(sources.unparsed.items()), None)
        why = f": {unparsed[0]} does not parse ({unparsed[1]})" if unparsed else ""
        raise NoCheckout(f"{root} looks like {name}, but zdoctor found no key that it reads{why}.")
    return replace(schema, commit=commit_of(root), source=str(root)), sources.stamps
