"""Repairs as they are told: one that would be or was done, and those of the past."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from .findings import Report
from .plans import Fix, Plan
from .record import dataclass, field

RepairState = Literal["applied", "undone", "rolled back", "cut short", "unfinished", "of a newer zdoctor"]


@dataclass(frozen=True)
class PastRepair:
    """One repair of the past. `when` is local time in ISO 8601, `what` one line per thing done."""

    id: str
    when: str
    config: str
    what: tuple[str, ...]
    state: RepairState


@dataclass(frozen=True)
class Fixed:
    """What `fix` would do or did: the first plan and its diff in words; `applied` ids, and a line for each thing
    `done`; the report after. `offers` are the diffs of edits of source code that wait for a decision.
    """

    before: Report
    plan: Plan
    diff: str
    applied: tuple[str, ...] = ()
    done: tuple[str, ...] = ()
    after: Report | None = None
    offers: Mapping[Fix, str] = field(default_factory=dict)
