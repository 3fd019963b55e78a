"""A plan becomes a change of the world, whole or not at all."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from ..files.fingerprints import of_bytes
from ..model import ExtractFiles, Plan, ReplaceText, SetValue, Step, WriteText
from ..model.record import dataclass
from ..state.receipts import Receipts
from .actions.build import tidy
from .actions.copy import Meter, Progress
from .actions.edit import is_text_sized
from .actions.errors import ANOTHER_STATE, ApplyError, StalePlan, clause
from .actions.journal import Journal, locked, unfinished
from .actions.paths import Key, at, key_of, place
from .steps import KINDS, describe, ordered, precheck
from .steps.needs import Work, hold
from .undo import recover_locked, roll_back

Binding = Mapping[str, Key | None]


@dataclass(frozen=True)
class Applied:
    """A transaction that took place. `id` is what `undo` asks for, empty when the plan was empty.

    `copied` and `adopted` are bytes; the latter lay finished where an earlier extraction was cut short. `unverified`
    counts the extracted files of which nothing says what they should hold.
    """

    id: str
    copied: int
    adopted: int = 0
    unverified: int = 0


def bind(plan: Plan) -> Binding:
    """The state a plan was made from: hashes of the texts it edits, lstat keys of all it touches or reads."""
    seen: dict[str, Key | None] = {}
    for step in plan.steps:
        path = place(step)
        seen[str(path)] = _key_at(path, text=isinstance(step, SetValue | ReplaceText | WriteText))
        for source in map(at, step.sources):
            seen[str(source)] = _key_behind(source)
    return seen


def _key_at(path: Path, *, text: bool) -> Key | None:
    """The hash of a text, of anything else what lstat tells: a pipe would never end, nor a file of 50 GB.

    A path that the system refuses to look at is refused when the plan is carried out.
    """
    try:
        return ("text", of_bytes(path.read_bytes())) if text and is_text_sized(path) else key_of(path)
    except OSError as error:
        return ("refused", error.strerror)


def _key_behind(path: Path) -> Key | None:
    """The key of what a link leads to."""
    try:
        info = path.stat()
    except OSError:
        return None
    return (stat.S_ISDIR(info.st_mode), info.st_size, info.st_mtime_ns)


def apply(
    plan: Plan,
    *,
    state: Path,
    binding: Binding | None = None,
    progress: Progress | None = None,
    group: str | None = None,
) -> Applied:
    """Carry out every fix of the plan, or nothing.

    `state` is zdoctor's state folder, `binding` what `bind` said when the plan was made, `progress` is called with
    (bytes copied, bytes to copy, file), with no bytes for what else takes its time; `group` is the id of the first
    pass when a repair takes several, so that one
    undo takes all of them back. Raises StalePlan or ApplyError; the world is then as before. Ctrl-C too
    takes everything back before it goes on as KeyboardInterrupt, and so does an error of our own. What an
    extraction had finished stays beside its target, and the message says so.
    """
    groups = ordered(plan)
    if not groups:
        return Applied("", 0)
    with locked(state), ExitStack() as held:
        lines = recover_locked(state)
        if stuck := unfinished(state):
            raise ApplyError(f"{lines[-1]}. Nothing was done.", f"Its journal: {stuck[0].folder}")
        if binding is not None:
            _require_unchanged(plan, binding)
        try:
            needs = precheck([step for group in groups for step in group], progress)
        except (ApplyError, OSError) as error:
            raise ApplyError(f"{clause(error)}. Nothing was done.", getattr(error, "hint", "")) from error
        places = [place(group[0]) for group in groups]
        what = tuple(describe(step) for group in groups for step in group)
        meter = Meter(needs.copied, progress)
        try:
            journal = Journal.create(state, plan.config, what, group)
        except OSError as error:
            text = f"The journal cannot be written, so nothing was changed: {clause(error)}."
            raise ApplyError(text, ANOTHER_STATE) from error
        try:
            hold(needs.locks, journal, held)
            work = Work(journal, meter, Receipts(state))
            for steps, path in zip(groups, places, strict=True):
                _require_same_place(steps[0], path)
                KINDS[type(steps[0])].perform(steps, path, work)
            tidy(journal)
            journal.log({"do": "applied"})
        except BaseException as error:
            left = roll_back(journal, release=held.close)
            kept = "".join(f" {text}." for text in journal.kept_parts)
            if isinstance(error, KeyboardInterrupt):
                error.args = (kept.strip(),) if kept else ()
            if not isinstance(error, ApplyError | OSError):
                raise
            after = "Everything is as before." if not left else f"Not taken back: {'; '.join(left)}."
            raise ApplyError(f"{clause(error)}. {after}{kept}") from error
        extractions = [step for step in plan.steps if isinstance(step, ExtractFiles)]
        unverified = sum(item.digest is None for step in extractions for item in step.items)
        return Applied(journal.id, meter.done, meter.adopted, unverified)


def _require_same_place(step: Step, path: Path) -> None:
    """A step before it may have put a link on the way; what was looked at lies at `path`."""
    if place(step) != path:
        raise ApplyError(f"{step.path} would lead elsewhere after a step before it")


def _require_unchanged(plan: Plan, binding: Binding) -> None:
    now = bind(plan)
    for path in sorted({*now, *binding}):
        if now.get(path) != binding.get(path):
            raise StalePlan(f"{path} has changed since the plan was made. Nothing was done; check again.")
