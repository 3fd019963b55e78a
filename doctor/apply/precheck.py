"""What can be known before the first byte is written: what stands against a plan is said then."""

from __future__ import annotations

from pathlib import Path

from ..model import Quarantine, ReplaceText, SetValue, Step
from .actions.errors import ApplyError
from .actions.paths import QUARANTINE, at, behind, hub_root, place
from .steps import KINDS
from .steps.needs import Needs


def precheck(steps: list[Step]) -> Needs:
    """What the steps of a plan need. Raises ApplyError for what stands against them."""
    needs = Needs()
    taken: dict[Path, Step] = {}
    for step in steps:
        path = place(step)
        _require_inside(at(step.path), path)
        _require_apart(step, path, taken)
        KINDS[type(step)].precheck(step, path, needs)
    needs.require_room()
    return needs


def _require_inside(named: Path, path: Path) -> None:
    """Refuse to follow a link out of a hub cache, where the files of somebody else would be written to."""
    root = hub_root(named)
    if root is None:
        return
    for target in (path, behind(root / QUARANTINE)):
        if behind(root) not in target.parents:
            raise ApplyError(f"{named} leads out of the cache, to {target}")


def _require_apart(step: Step, path: Path, taken: dict[Path, Step]) -> None:
    """Refuse a plan whose steps get in each other's way: an earlier step at the same path may only be another edit
    of the same text, or what moved the old thing aside."""
    before = taken.get(path)
    edits = isinstance(step, SetValue | ReplaceText) and isinstance(before, SetValue | ReplaceText)
    cleared = isinstance(before, Quarantine) and not isinstance(step, Quarantine | SetValue | ReplaceText)
    nested = any(path in other.parents or other in path.parents for other in taken)
    if nested or not (before is None or edits or cleared):
        raise ApplyError(f"The plan writes to {path} twice")
    taken[path] = step
