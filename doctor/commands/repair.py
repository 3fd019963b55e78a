"""Repairs planned, carried out as a transaction, and checked again: what fix and cache share, and undo's recovery."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import apply as writer
from ..examine.engine import prescribe
from ..model import Fix, Plan, ReplaceText, Report, TrainingEffect
from ..model.record import replace
from ..model.repairs import Fixed
from ..state import state_folder
from . import console

MOST_PASSES = 3


def carry_out(
    look: Callable[[], Report],
    *,
    look_again: Callable[[Plan], Report] | None = None,
    apply: bool,
    allow: TrainingEffect = "none",
    asked: bool = False,
    online: bool = False,
    progress: Any = None,
) -> Fixed:
    """What `look` reports, planned and, with `apply`, repaired; as in `fix`. `look_again` looks after a plan was
    carried out, where that is not the same."""
    first = look()
    plan = prescribe(first, allow=allow, asked=asked)
    binding = writer.bind(plan)
    result = Fixed(first, plan, writer.diff(plan, online=online), offers=_offers(plan))
    if not apply or not plan.fixes:
        return result
    state, after = state_folder(), first
    applied: list[str] = []
    lines: list[str] = []
    try:
        while plan.fixes and len(applied) < MOST_PASSES:
            group = applied[0] if applied else None
            done = writer.apply(plan, binding=binding, state=state, progress=progress, group=group)
            applied.append(done.id)
            lines += map(writer.describe, plan.steps)
            after = look_again(plan) if look_again else look()
            plan = prescribe(after, allow=allow, asked=asked)
            binding = writer.bind(plan)
    except writer.ApplyError as error:
        if applied:
            error.hint = f"What was done before it: zdoctor undo {applied[0]}"
        raise
    return replace(result, applied=tuple(applied), done=tuple(lines), after=after)


def _offers(plan: Plan) -> dict[Fix, str]:
    """The diffs of the edits of source code that wait for the user's decision."""
    return {
        fix: writer.diff(Plan(plan.config, (fix,)))
        for fix in plan.shown
        if fix.steps and all(isinstance(step, ReplaceText) and step.path.endswith(".py") for step in fix.steps)
    }


def recover() -> None:
    """Finish or roll back what an earlier zdoctor was killed in; said in words when there was something."""
    for line in writer.recover(state_folder()):
        _say(line)


def say_unfinished() -> None:
    """Say what an earlier zdoctor was killed in, for a command that changes nothing; never fails."""
    try:
        waiting = writer.unfinished(state_folder())
    except writer.ApplyError as error:
        _say(str(error))
        return
    for journal in waiting:
        _say(f"{journal.id} was cut short, or another zdoctor is at it now. zdoctor undo puts everything back.")


def _say(line: str) -> None:
    console.tell(line)
