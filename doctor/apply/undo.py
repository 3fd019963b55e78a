"""Taking back: after an error, after a kill, or because the user asks."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from ..model.amounts import amount
from ..model.repairs import PastRepair, RepairState
from .actions import revert
from .actions.build import changed_since, moved_since
from .actions.edit import edited_since
from .actions.errors import ANOTHER_STATE, ApplyError, Busy, UndoRefused, clause, reason
from .actions.journal import Journal, clear_unbegun, journals, locked, unfinished
from .actions.part import kept_in
from .actions.paths import lies


def roll_back(
    journal: Journal, final: str = "rolled-back", release: Callable[[], None] = lambda: None
) -> tuple[str, ...]:
    """Take back every action, the last one first. What cannot be taken back without loss stays and is named.

    `release` lets go of the locks that are held, as late as can be: Windows removes no file that is open.

    An action that the system refuses to take back stops it, because the ones before may build on it; the
    transaction stays unfinished then, and the next command tries again.
    """
    left: list[str] = []
    stuck = False
    reverted = {record["n"] for record in journal.records if record["do"] == "reverted"}
    for record in reversed(journal.actions):
        n = record["n"]
        if n in reverted:
            continue
        try:
            if record.get("lock"):
                release()
            objection = revert(journal, record)
            if objection is not None:
                left.append(objection)
            journal.log({"do": "reverted", "n": n})
        except OSError as error:
            left.append(reason(error))
            stuck = True
            break
    if not stuck:
        try:
            journal.log({"do": final, "left": left, "kept": _kept(journal) if final == "rolled-back" else []})
        except OSError as error:
            left.append(reason(error))
    return tuple(left)


def _kept(journal: Journal) -> list[str]:
    """What outlives the rollback, in words."""
    parts = [kept_in(Path(record["path"])) for record in journal.actions if record.get("kept")]
    parts += [_salvaged(Path(record["salvage"]["to"])) for record in journal.actions if record.get("salvage")]
    return list(filter(None, parts))


def _salvaged(partial: Path) -> str | None:
    try:
        count = amount(partial.stat().st_size)
    except OSError:
        return None
    return f"What was downloaded is kept in {partial}, {count}: the same command goes on from there"


def recover(state: Path) -> tuple[str, ...]:
    """Take back what a kill cut short, if there is anything, and say so line by line.

    Touches nothing otherwise, and leaves alone what another zdoctor is doing at this moment.
    """
    if not unfinished(state):
        return ()
    try:
        with locked(state):
            return recover_locked(state)
    except Busy:
        return ()


def recover_locked(state: Path) -> tuple[str, ...]:
    """As `recover`, for who holds the lock. An undo that was cut short is finished for all passes of its repair."""
    lines = [f"{id} was cut short before it had changed anything" for id in clear_unbegun(state)]
    known = journals(state)
    undoing = {journal.group for journal in known if journal.state == "unfinished" and journal.said("undoing")}
    for journal in reversed(known):
        undo = journal.group in undoing
        if journal.state != "unfinished" and not (undo and journal.state == "applied"):
            continue
        left = roll_back(journal, "undone" if undo else "rolled-back")
        if journal.state == "unfinished":
            return (*lines, f"{journal.id} was cut short and cannot be taken back yet: {left[-1]}")
        what = "an undo that was cut short was finished" if undo else "it was cut short"
        lines.append(f"{journal.id} was taken back: {what}")
        lines += (f"left as it is: {line}" for line in left)
        lines += journal.kept_parts
    return tuple(lines)


def history(state: Path) -> tuple[PastRepair, ...]:
    """Every transaction, oldest first; the passes of one repair are one entry.

    Raises ApplyError where the journal cannot be read, which is not the same as an empty one.
    """
    try:
        os.listdir(state / "journal")
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise ApplyError(f"The journal of earlier repairs cannot be read: {clause(error)}.", ANOTHER_STATE) from error
    groups: dict[str, list[Journal]] = {}
    for journal in journals(state):
        groups.setdefault(journal.group, []).append(journal)
    return tuple(_entry(id, passes) for id, passes in groups.items())


def _entry(id: str, passes: list[Journal]) -> PastRepair:
    first = passes[0].records[0]
    states: list[RepairState] = [journal.state for journal in passes]
    if passes[0].newer:
        when, config = str(first.get("when", "")), str(first.get("config", ""))
        return PastRepair(id, when, config, (_left_alone(passes[0]),), passes[0].state)
    what = tuple(line for journal in passes for line in journal.records[0]["what"])
    order: tuple[RepairState, ...] = ("unfinished", "applied", "undone", "cut short", "rolled back")
    return PastRepair(id, first["when"], first["config"], what, next(state for state in order if state in states))


def _left_alone(journal: Journal) -> str:
    return f"its journal is of a newer zdoctor, which alone can take it back: {journal.folder}"


def undo(id: str | None = None, *, state: Path) -> tuple[str, ...]:
    """Put every byte, mode, link and time back to what it was before a repair, the last one by default.

    That is the one that a kill cut short, where there is one. `id` may be shortened as long as it is unambiguous.
    Returns one line per thing taken back. Raises UndoRefused, naming the file, when something was changed since,
    and touches nothing then.
    """
    with locked(state):
        cut_short = {journal.group for journal in unfinished(state)}
        lines = list(recover_locked(state))
        if stuck := unfinished(state):
            raise ApplyError(f"{lines[-1]}.", f"Its journal: {stuck[0].folder}")
        if lines and id is None:
            chosen = [journal for journal in _applied(journals(state)) if journal.group in cut_short]
        else:
            chosen = _chosen(id, journals(state), cut_short)
        objections = _objections(chosen)
        if objections:
            raise UndoRefused(". ".join(objections[:3]) + ("; …" if len(objections) > 3 else "."))
        for journal in chosen:
            journal.log({"do": "undoing"})
        for journal in chosen:
            left = roll_back(journal, "undone")
            if journal.state != "undone":
                raise ApplyError(f"{left[-1]}. The undo will go on with the next command.")
            lines += (f"taken back: {line}" for line in reversed(journal.records[0]["what"]))
            lines += (f"left as it is: {line}" for line in left)
        return tuple(lines)


def _applied(known: list[Journal]) -> list[Journal]:
    return [journal for journal in reversed(known) if journal.state == "applied"]


def _chosen(id: str | None, known: list[Journal], cut_short: set[str]) -> list[Journal]:
    """The applied transactions of one repair, newest first; none of one that was cut short and is taken back."""
    applied = _applied(known)
    if id is None:
        if known and known[-1].newer:
            raise UndoRefused(f"The last repair is {known[-1].id}: {_left_alone(known[-1])}.")
        if not applied:
            raise UndoRefused("There is nothing to undo.")
        return [journal for journal in applied if journal.group == applied[0].group]
    named = {journal.group for journal in known if id in (journal.group, journal.id)}
    named = named or {journal.group for journal in known if journal.group.startswith(id)}
    if len(named) != 1:
        raise UndoRefused(
            f"{id} names {len(named)} repairs." if named else f"There is no repair {id}; zdoctor history lists them."
        )
    chosen = [journal for journal in applied if journal.group in named]
    if newer := [journal for journal in known if journal.group in named and journal.newer]:
        raise UndoRefused(f"{newer[0].id}: {_left_alone(newer[0])}.")
    if not chosen and not named <= cut_short:
        raise UndoRefused(f"{named.pop()} was already taken back.")
    return chosen


def _objections(chosen: list[Journal]) -> list[str]:
    """What undoing would lose. The actions are looked at backwards, as they will be taken back."""
    found: list[str | None] = []
    lying: dict[Path, bool] = {}  # where the actions looked at so far will have put something, or left nothing
    restored: dict[Path, str] = {}

    def there(path: Path) -> bool:
        return lying[path] if path in lying else lies(path)

    for journal, record in ((j, r) for j in chosen for r in reversed(j.actions)):
        if record["do"] == "edit":
            path = Path(record["path"])
            if restored.get(path) not in (record["before"], record["after"]):
                found.append(edited_since(journal, record))
            restored[path] = record["before"]
        elif record["do"] == "place":
            path = Path(record["to"])
            if lies(path) and path not in restored and path not in lying:
                found.append(changed_since(path, record, lying))
            lying[path] = False
        elif record["do"] == "move":
            found.append(moved_since(record, there))
            lying |= {Path(record["from"]): True, Path(record["to"]): False}
        elif record["do"] == "folder":
            folder = Path(record["path"])
            if folder.is_dir() and not any(map(there, folder.iterdir())):
                lying[folder] = False
    return list(filter(None, found))
