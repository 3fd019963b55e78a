"""Step: a file is moved out of the way, beside where it lies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...model import Quarantine
from ..actions.build import move
from ..actions.errors import ApplyError
from ..actions.paths import aside, at, hub_root, lies
from .needs import Needs, Work, locks_of


def describe(step: Quarantine) -> str:
    is_cached = hub_root(at(step.path)) is not None
    return f"move {step.path} aside, {'inside the cache' if is_cached else 'beside where it lies'}"


def precheck(step: Quarantine, path: Path, needs: Needs) -> None:
    if not lies(path):
        raise ApplyError(f"{path} is not there any more")
    needs.cleared.add(path)
    needs.room(path)
    root = hub_root(path)
    if root is not None and path.parent == root / "blobs" and path.name.endswith(".incomplete"):
        needs.locks |= locks_of(path, path.name.partition(".")[0])


def perform(steps: Sequence[Quarantine], path: Path, work: Work) -> None:
    move(work.journal, path, aside(path, work.journal.id, "quarantine"))
