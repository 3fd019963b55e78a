"""Step: a verified copy, or a second name, of a file is put somewhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...model import PlaceCopy
from ...model.amounts import amount
from ..actions.build import make
from ..actions.copy import Meter, copy_file, link_file
from ..actions.errors import ApplyError
from ..actions.paths import at
from .needs import Needs, Work, locks_of


def describe(step: PlaceCopy) -> str:
    return f"{'hard-link' if step.link else 'copy'} {step.source}, {amount(step.size)}, to {step.path}, verifying it"


def precheck(step: PlaceCopy, path: Path, needs: Needs) -> None:
    source = at(step.source)
    needs.source(source, step.size)
    needs.file_place(path)
    needs.room(path, [(source, step.size)], link=step.link)
    needs.locks |= locks_of(path, step.digest)


def perform(steps: Sequence[PlaceCopy], path: Path, work: Work) -> None:
    make(work.journal, path, lambda part: _copy(steps[0], part, work.meter), instead=True)


def _copy(step: PlaceCopy, target: Path, meter: Meter) -> None:
    source = Path(step.source).absolute()
    try:
        (link_file if step.link else copy_file)(source, target, step.size, step.digest, meter)
    except ApplyError as error:
        raise ApplyError(f"{error}; with --deep, such a copy is read before it is chosen") from error
