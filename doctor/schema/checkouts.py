"""Checkouts of trainers: which trainer's a folder is, where one may lie, which commit it holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..trainers import named, trainers

HIGHEST = 12  # folders above a config that may be the checkout


class NoCheckout(Exception):
    """A folder that is no checkout of a trainer that zdoctor knows, or that holds nothing it can read."""


def recognised(root: Path) -> str | None:
    """The trainer whose checkout a folder is, None for any other folder."""
    return next((trainer.name for trainer in trainers() if (root / trainer.marker).is_file()), None)


def find(trainer: str, near: Sequence[str]) -> Path | None:
    """The checkout of a trainer at or above one of these folders, or cloned into one of them under its own name."""
    known = named(trainer)
    if known is None:
        return None
    for start in map(Path, near):
        for place in (start, *start.parents[:HIGHEST], start / known.name):
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
