"""One module for each kind of step. A new kind is a record in doctor/model/plans.py, a module here and a line below.

What a step writes to is its `path`; how it is taken back is known to the actions it is made of.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import unified_diff
from pathlib import Path
from typing import Any, Protocol

from ...model import (
    ExtractFiles,
    FetchFile,
    InstallPackages,
    MakeEnvironment,
    MakeLink,
    MirrorFolder,
    PlaceCopy,
    Plan,
    Quarantine,
    ReplaceText,
    SetValue,
    Step,
    WriteTensors,
    WriteText,
)
from ..actions.copy import Progress
from ..actions.errors import ApplyError
from ..actions.paths import QUARANTINE, at, behind, hub_root, place
from . import (
    edit_text,
    extract_files,
    fetch_file,
    install_packages,
    make_environment,
    make_link,
    mirror_folder,
    place_copy,
    quarantine,
    write_tensors,
    write_text,
)
from .needs import Needs, Work
from .reach import require_hub

_ADDRESS = re.compile(r"\b([0-9a-f]{8})(?:[0-9a-f]{32}|[0-9a-f]{56})\b")


class Kind(Protocol):
    """What is known of a kind of step; `step` is a record of that kind, `path` where it writes, links resolved."""

    def describe(self, step: Any) -> str:
        """The step as one line for a person."""
        ...

    def precheck(self, step: Any, path: Path, needs: Needs) -> None:
        """Tell `needs` what the step needs; raise ApplyError for what stands against it: then nothing was done."""

    def perform(self, steps: Sequence[Any], path: Path, work: Work) -> None:
        """Carry out one group of `ordered`, by actions, which the journal announces."""


KINDS: dict[type[Step], Kind] = {
    SetValue: edit_text,
    ReplaceText: edit_text,
    ExtractFiles: extract_files,
    MirrorFolder: mirror_folder,
    Quarantine: quarantine,
    WriteText: write_text,
    MakeLink: make_link,
    PlaceCopy: place_copy,
    FetchFile: fetch_file,
    InstallPackages: install_packages,
    MakeEnvironment: make_environment,
    WriteTensors: write_tensors,
}


def describe(step: Step) -> str:
    """The step as one line for a person; content addresses and commits are shortened as git does."""
    return _ADDRESS.sub(r"\1…", KINDS[type(step)].describe(step))


def ordered(plan: Plan) -> tuple[tuple[Step, ...], ...]:
    """The plan as groups, each carried out at once: all edits of one file together, where the last of them stands,
    and all that is installed into one environment from one index."""
    groups: dict[object, tuple[Step, ...]] = {}
    for number, step in enumerate(plan.steps):
        key: object = behind(at(step.path)) if isinstance(step, SetValue | ReplaceText | InstallPackages) else number
        key = (key, step.index) if isinstance(step, InstallPackages) else key
        groups[key] = (*groups.pop(key, ()), step)
    return tuple(groups.values())


def diff(plan: Plan, *, online: bool = False) -> str:
    """What the plan would change: a unified diff of the text files, then one line per other step; where an index may
    be asked (`online`), the versions that an install changes."""
    parts: list[str] = []
    lines: list[str] = []
    for group in ordered(plan):
        edits = [step for step in group if isinstance(step, SetValue | ReplaceText)]
        if not edits:
            rewritten = [step for step in group if isinstance(step, WriteText) and step.before is not None]
            for step in rewritten:
                parts += unified_diff(_lines(step.before or ""), _lines(step.text), step.path, step.path, lineterm="")
            lines += [describe(step) for step in group if step not in rewritten]
            installs = [step for step in group if isinstance(step, InstallPackages | MakeEnvironment)]
            if installs and online:
                try:
                    lines += KINDS[type(installs[0])].preview(installs, at(installs[0].path))  # type: ignore[attr-defined]
                except ApplyError as error:
                    lines.append(f"cannot be done now: {error}")
            continue
        path = at(edits[0].path)
        try:
            before, encoding = edit_text.read_text(path)
            after = edit_text.edited(path, edits).decode(encoding, "surrogateescape")
        except (ApplyError, OSError) as error:
            lines += [f"cannot be done now: {describe(step)} ({error})" for step in edits]
            continue
        parts += unified_diff(_lines(before), _lines(after), edits[0].path, edits[0].path, lineterm="")
    return "\n".join([*parts, *lines])


def _lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n")


def precheck(steps: list[Step], progress: Progress | None = None) -> Needs:
    """What the steps of a plan need. Raises ApplyError for what stands against them."""
    needs = Needs()
    taken: dict[Path, Step] = {}
    above: set[Path] = set()
    for step in steps:
        path = place(step)
        _require_inside(at(step.path), path)
        _require_apart(step, path, taken, above)
        KINDS[type(step)].precheck(step, path, needs)
    needs.require_room()
    if needs.online:
        if progress is not None:
            progress(0, 0, "asking whether the hub can be reached")
        require_hub(fetch_file.mirror())
    return needs


def _require_inside(named: Path, path: Path) -> None:
    """Refuse to follow a link out of a hub cache, where the files of somebody else would be written to."""
    root = hub_root(named)
    if root is None:
        return
    for target in (path, behind(root / QUARANTINE)):
        if behind(root) not in target.parents:
            raise ApplyError(f"{named} leads out of the cache, to {target}")


def _require_apart(step: Step, path: Path, taken: dict[Path, Step], above: set[Path]) -> None:
    """Refuse a plan whose steps get in each other's way: an earlier step at the same path may only be another edit
    of the same text, or what moved the old thing aside. `above` holds the folders above what is taken."""
    before = taken.get(path)
    edits = isinstance(step, SetValue | ReplaceText) and isinstance(before, SetValue | ReplaceText)
    installs = isinstance(step, InstallPackages) and isinstance(before, InstallPackages)
    cleared = isinstance(before, Quarantine) and not isinstance(step, Quarantine | SetValue | ReplaceText)
    nested = path in above or any(folder in taken for folder in path.parents)
    if nested or not (before is None or edits or installs or cleared):
        raise ApplyError(f"The plan writes to {path} twice")
    taken[path] = step
    above.update(path.parents)
