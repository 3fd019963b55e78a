"""The journal: what was about to be done, on disk before it is done, so that it can be taken back.

One folder per transaction, `<state>/journal/<id>/`: `journal.jsonl` holds one record per line, beside it lie the
former contents of edited files. Records, in order of appearance (`n` numbers the action):

    begin                     who, when, which config, what in words
    edit, move, part, place, folder, scratch     action `n` is about to start
    in-place n                the edit is about to write over the file itself: a kill may leave it half written
    applied                   the commit mark
    undoing                   the user asked to take it back
    reverted n                the action was taken back
    undone | rolled-back      finished; `kept`: what stayed all the same, in words
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ...files.durable import append_rows, sync_folder, values_of, write_durably
from ...model.repairs import RepairState
from .errors import ANOTHER_STATE, ApplyError, Busy, clause

Record = dict[str, Any]
_FINAL: dict[str, RepairState] = {"applied": "applied", "undone": "undone", "rolled-back": "rolled back"}
VERSION = 1
# what each kind of record must hold, besides the number of its action
_BEGIN: Record = {"when": str, "config": str, "what": list}
_FIELDS: dict[str, Record] = {
    "edit": {"path": str, "temporary": str, "mode": int, "mtime_ns": int, "before": str, "after": str},
    "move": {"from": str, "to": str},
    "part": {"path": str},
    "place": {"from": str, "to": str, "contents": dict},
    "folder": {"path": str},
    "scratch": {"path": str},
}
_SALVAGE: Record = {"from": str, "to": str, "size": int}


class Journal:
    """One transaction on disk. Every record is forced to disk before `log` returns. Raises ApplyError for damage."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.id = folder.name
        self.records: list[Record] = _read(folder / "journal.jsonl")

    @classmethod
    def create(cls, state: Path, config: str, what: tuple[str, ...], group: str | None = None) -> Journal:
        now = datetime.now().astimezone()
        stamp = now.astimezone(timezone.utc).strftime("%Y%m%d-%H%M%S-%f")
        folder = state / "journal" / f"{stamp}-{secrets.token_hex(1)}"
        folder.mkdir(parents=True, mode=0o700)
        sync_folder(folder.parent)
        journal = cls(folder)
        when = now.isoformat(timespec="seconds")
        begin = {
            "do": "begin",
            "version": VERSION,
            "when": when,
            "group": group,
            "config": config,
            "what": list(what),
        }
        journal.log(begin)
        sync_folder(folder)
        return journal

    def log(self, record: Record) -> None:
        """Append a record; a torn last line, left by a kill, is closed first and never read."""
        append_rows(self.folder / "journal.jsonl", record)
        self.records.append(record)

    def begin(self, do: str, **details: Any) -> int:
        """Announce an action and give it its number."""
        n = len(self.actions)
        self.log({"do": do, "n": n, **details})
        return n

    def keep(self, name: str, data: bytes) -> None:
        """Store the contents of a file in the transaction's folder."""
        write_durably(self.folder / name, data, "wb")
        sync_folder(self.folder)

    def kept(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    @property
    def actions(self) -> list[Record]:
        return [record for record in self.records if record["do"] in _FIELDS]

    def said(self, do: str, n: int | None = None) -> bool:
        """Whether the record `do`, of the ones about an action that about action `n`, was written."""
        return any(record["do"] == do and record.get("n") == n for record in self.records)

    @property
    def newer(self) -> bool:
        """Whether a newer zdoctor wrote it: nobody here knows what its records mean."""
        return int(self.records[0]["version"]) > VERSION

    @property
    def state(self) -> RepairState:
        if self.newer:
            return "of a newer zdoctor"
        last = next((r["do"] for r in reversed(self.records) if r["do"] in {*_FINAL, "undoing"}), "")
        return "cut short" if self.kept_parts else _FINAL.get(last, "unfinished")

    @property
    def kept_parts(self) -> list[str]:
        """What an extraction that was taken back left to go on from, in words."""
        return [str(text) for text in self.records[-1].get("kept", [])] if self.said("rolled-back") else []

    @property
    def group(self) -> str:
        """The first transaction of the repair this one is a pass of."""
        return str(self.records[0].get("group") or self.id)


def _read(path: Path) -> list[Record]:
    """The records of a journal, none where a kill came before the first. Raises ApplyError where one is damaged."""
    try:
        records = values_of(path.read_bytes())
    except FileNotFoundError:
        records = []
    kept = any(file != path for file in path.parent.iterdir())
    damage = next(_damages(records), "its records are missing" if kept and not records else None)
    if damage is not None:
        where = f"The journal of an earlier repair, {path.parent}, is damaged ({damage}). Nothing was changed."
        hint = (
            "It holds what edited files held before. Look there, then move that folder away and type the same again."
        )
        raise ApplyError(where, hint)
    return records


def _damages(records: list[Any]) -> Iterator[str]:
    """What of the records no zdoctor can have written; of those of a newer one only the first is known."""
    if not records:
        return
    if any(not isinstance(record, dict) or not isinstance(record.get("do"), str) for record in records):
        yield "a line of it is no record"
        return
    first, actions = records[0], [record for record in records if record["do"] in _FIELDS]
    version = first.get("version")
    if first["do"] != "begin" or type(version) is not int:
        yield "its first record is missing"
    elif version <= VERSION:
        salvages = [record["salvage"] for record in actions if record.get("salvage") is not None]
        parts = [(first, _BEGIN), *((r, _FIELDS[r["do"]]) for r in actions), *((s, _SALVAGE) for s in salvages)]
        if not all(_has(*part) for part in parts) or not all(isinstance(line, str) for line in first["what"]):
            yield "a record of it is not whole"
        if [record.get("n") for record in actions] != list(range(len(actions))):
            yield "a record of it is missing"


def _has(record: Any, fields: Record) -> bool:
    return isinstance(record, dict) and all(
        name in record and isinstance(record[name], kind) for name, kind in fields.items()
    )


def journals(state: Path) -> list[Journal]:
    """Every transaction that got as far as its first record, oldest first. Raises ApplyError where one is hidden."""
    return [journal for journal in map(Journal, _folders(state)) if journal.records]


def clear_unbegun(state: Path) -> list[str]:
    """Remove what a kill before the first record left of transactions, which changed nothing. Gives their ids."""
    unbegun = [journal for journal in map(Journal, _folders(state)) if not journal.records]
    for journal in unbegun:
        shutil.rmtree(journal.folder)
    return [journal.id for journal in unbegun]


def _folders(state: Path) -> list[Path]:
    try:
        return [path for path in sorted((state / "journal").iterdir()) if path.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise ApplyError(f"The journal of earlier repairs cannot be read: {clause(error)}.", ANOTHER_STATE) from error


def unfinished(state: Path) -> list[Journal]:
    """Transactions that a kill cut short, newest first: the order in which they must be taken back.

    Every check asks, so of those that have ended only the last record is looked at. Raises ApplyError for damage in
    the others.
    """
    doubtful = [Journal(folder) for folder in reversed(_folders(state)) if not _has_ended(folder)]
    return [journal for journal in doubtful if journal.records and journal.state == "unfinished"]


def _has_ended(folder: Path) -> bool:
    try:
        last = (folder / "journal.jsonl").read_bytes().rstrip(b"\n").rpartition(b"\n")[2]
    except OSError:
        return False
    return any(isinstance(record, dict) and record.get("do") in _FINAL for record in values_of(last))


@contextmanager
def locked(state: Path) -> Iterator[None]:
    """Only one zdoctor writes at a time. The system frees the lock when the process dies.

    Raises Busy, or ApplyError where the state folder cannot be written to.
    """
    from filelock import FileLock, Timeout  # costs more than a look at the journal does

    folder = state / "journal"
    lock = FileLock(folder / "lock", timeout=0)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock.acquire()
    except Timeout as error:
        raise Busy("Another zdoctor is changing files right now. Wait until it is done.") from error
    except (OSError, NotImplementedError) as error:
        text = f"The journal cannot be written, so nothing was changed: {clause(error)}."
        raise ApplyError(text, ANOTHER_STATE) from error
    try:
        yield
    finally:
        lock.release()
