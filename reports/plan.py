"""What a fix would do, for a person: the plan, its changes line by line, and what is left to the user."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..doctor.model import Fix, Plan
from ..doctor.model.said import AsIs, said
from . import words
from .painting import Line, Typed, Wrapped


def lines(
    plan: Plan, diff: str, *, offers: Mapping[Fix, str] = {}, decisions: Mapping[Fix, str] = {}
) -> Iterator[Line]:
    """The plan, `diff` being its changes, and what it leaves to the user.

    `offers` are the changes of what is left, where they are known; `decisions` what to type for it.
    """
    if not plan.fixes:
        yield [("bold", "Nothing to repair that zdoctor would do by itself.")]
    for fix in plan.fixes:
        yield Wrapped(f"{fix.rule}  {said(words.titled(fix))}", "  ", "green")
    if diff:
        yield []
        yield from _diff(diff)
    if plan.shown:
        yield []
        yield [("bold", "Left to you:")]
        typed = [fix.command or decisions.get(fix, "") for fix in plan.shown]
        for fix, command, following in zip(plan.shown, typed, [*typed[1:], ""], strict=True):
            yield Wrapped(f"{fix.rule}  {said(words.titled(fix))}", "  ")
            yield from _diff(offers.get(fix, ""), "      ")
            if command and command != following:
                yield Typed(command, "      $ ")


def _diff(text: str, lead: str = "") -> Iterator[Line]:
    for line in text.splitlines():
        style = "green" if line.startswith("+") else "red" if line.startswith("-") else "dim"
        changed = line.startswith(("+", "-", " ", "@"))  # else a step in words
        yield [(style, AsIs(f"{lead}{line}") if changed else f"{lead}{line}")]
