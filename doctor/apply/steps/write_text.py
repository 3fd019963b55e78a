"""Step: a small text file is written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...files.durable import write_durably
from ...model import WriteText
from ..actions.build import make
from ..actions.edit import edit, is_text_sized
from .needs import Needs, Work


def describe(step: WriteText) -> str:
    return f"write into {step.path}: {step.text.strip()[:60]!r}"


def precheck(step: WriteText, path: Path, needs: Needs) -> None:
    needs.file_place(path)
    needs.room(path)


def perform(steps: Sequence[WriteText], path: Path, work: Work) -> None:
    data = steps[0].text.encode("utf-8", "surrogateescape")
    if is_text_sized(path):
        edit(work.journal, path, data)
    else:
        make(work.journal, path, lambda part: write_durably(part, data), instead=True)
