"""Step: a symbolic link is put somewhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...model import MakeLink
from ..actions.build import make
from .needs import Needs, Work


def describe(step: MakeLink) -> str:
    return f"link {step.path} to {step.target}"


def precheck(step: MakeLink, path: Path, needs: Needs) -> None:
    needs.file_place(path)
    needs.room(path)


def perform(steps: Sequence[MakeLink], path: Path, work: Work) -> None:
    target = steps[0].target
    if not (path.is_symlink() and str(path.readlink()) == target):
        make(work.journal, path, lambda part: part.symlink_to(target), instead=True)
