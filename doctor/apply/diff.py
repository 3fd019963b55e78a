"""What a plan would change, for a person to read."""

from __future__ import annotations

from ..model import Plan, ReplaceText, SetValue
from .actions.errors import ApplyError
from .actions.paths import at
from .steps import describe, ordered
from .steps.edit_text import edited, read_text


def diff(plan: Plan) -> str:
    """What the plan would change: a unified diff of the text files, then one line per other step."""
    from difflib import unified_diff

    parts: list[str] = []
    lines: list[str] = []
    for group in ordered(plan):
        edits = [step for step in group if isinstance(step, SetValue | ReplaceText)]
        if not edits:
            lines += map(describe, group)
            continue
        path = at(edits[0].path)
        try:
            before, encoding = read_text(path)
            after = edited(path, edits).decode(encoding, "surrogateescape")
        except (ApplyError, OSError) as error:
            lines += [f"cannot be done now: {describe(step)} ({error})" for step in edits]
            continue
        parts += unified_diff(_lines(before), _lines(after), edits[0].path, edits[0].path, lineterm="")
    return "\n".join([*parts, *lines])


def _lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n")
