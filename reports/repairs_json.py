"""Repairs as JSON objects: a plan and what was done of it (zdoctor.plan/1), and all of the past (zdoctor.history/1).

Changes are additive only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypedDict

from ..doctor.model import Fix, Report, Safety, Step, TrainingEffect, Unjudged
from ..doctor.model.repairs import Fixed, PastRepair, RepairState
from .json import Head, ReportDocument, as_data, dumps, head, shown

_NEXT_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")


class ShownStep(TypedDict):
    """A step of a repair: `kind` is what it does, `path` what it writes to, `what` both in words."""

    kind: str
    path: str
    sources: Sequence[str]
    what: str


class ShownRepair(TypedDict):
    """A repair. `command` is what to type for it where zdoctor does not carry it out by itself; `diff` what it would
    change in source code that is the user's to decide about."""

    rule: str
    title: str
    safety: Safety
    training_effect: TrainingEffect
    steps: list[ShownStep]
    command: str | None
    diff: str | None


class Done(TypedDict):
    """What was done, line by line, and what to type to take it back."""

    id: str
    what: Sequence[str]
    undo: str


class Following(TypedDict):
    command: str
    about: str


class PlanDocument(Head):
    """The repairs as a plan. `fixes` would be carried out, or were, with `diff` as what they change; those in `left`
    are for the user. `applied` and `after` are null where nothing was carried out."""

    schema: Literal["zdoctor.plan/1"]
    config: str
    trainer: str | None
    machine: str | None
    fixes: list[ShownRepair]
    diff: str
    left: list[ShownRepair]
    applied: Done | None
    next: list[Following]
    judged: Sequence[str]
    not_judged: Sequence[Unjudged]
    before: ReportDocument
    after: ReportDocument | None


class ShownPast(TypedDict):
    """A repair of the past. `undo` is what takes it back, null where that is done or cannot be."""

    id: str
    when: str
    state: RepairState
    config: str
    what: Sequence[str]
    undo: str | None


class HistoryDocument(Head):
    """What was repaired, the oldest first."""

    schema: Literal["zdoctor.history/1"]
    repairs: list[ShownPast]


def of_plan(
    fixed: Fixed,
    following: Sequence[tuple[str, str]],
    decisions: Mapping[Fix, str],
    describe: Callable[[Step], str],
    *,
    version: str,
    exit_code: int,
) -> str:
    """One JSON object. `following` is what to type next and what that does, the best first; `decisions` what
    to type for repairs that are the user's to decide. `describe` tells a step in a line."""

    def repair(fix: Fix) -> ShownRepair:
        steps = [_step(step, describe(step)) for step in fix.steps]
        command = fix.command or decisions.get(fix)
        return shown(ShownRepair, fix, steps=steps, command=command, diff=fixed.offers.get(fix))

    last: Report = fixed.after or fixed.before
    document: PlanDocument = {
        "schema": "zdoctor.plan/1",
        **head(version, exit_code),
        "config": last.config,
        "trainer": last.trainer,
        "machine": last.machine,
        "fixes": [repair(fix) for fix in fixed.plan.fixes],
        "diff": fixed.diff,
        "left": [repair(fix) for fix in fixed.plan.shown],
        "applied": {"id": fixed.applied[0], "what": fixed.done, "undo": undo(fixed.applied[0])}
        if fixed.applied
        else None,
        "next": [{"command": command, "about": about} for command, about in following],
        "judged": last.judged,
        "not_judged": last.not_judged,
        "before": as_data(fixed.before, version),
        "after": None if fixed.after is None else as_data(fixed.after, version),
    }
    return dumps(document)


def of_history(repairs: Sequence[PastRepair], version: str = "") -> str:
    """One JSON object."""
    past = [
        shown(ShownPast, one, undo=undo(one.id) if one.state in ("applied", "unfinished") else None)
        for one in repairs
    ]
    document: HistoryDocument = {"schema": "zdoctor.history/1", **head(version, 0), "repairs": past}
    return dumps(document)


def undo(id: str) -> str:
    return f"zdoctor undo {id}"


def _step(step: Step, what: str) -> ShownStep:
    kind = _NEXT_WORD.sub("-", type(step).__name__).lower()
    return {"kind": kind, "path": step.path, "sources": step.sources, "what": what}
