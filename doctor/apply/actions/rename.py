"""Two actions: something is renamed, and something new is renamed to where it belongs."""

from __future__ import annotations

from pathlib import Path

from ...files.durable import sync_both
from ...files.renaming import rename
from .errors import ApplyError
from .folder import ensure_folder
from .journal import Journal, Record
from .paths import contents, lies


def move(journal: Journal, source: Path, target: Path) -> None:
    """Rename; the target must not exist."""
    if not lies(source):
        raise ApplyError(f"{source} is not there any more")
    ensure_folder(journal, target.parent)
    if lies(target):
        raise ApplyError(f"{target} is in the way; move it and try again")
    journal.begin("move", **{"from": str(source), "to": str(target)})
    rename(source, target)
    sync_both(source, target)


def revert_move(journal: Journal, record: Record) -> str | None:
    source, target = Path(record["from"]), Path(record["to"])
    if not lies(target):
        return None if lies(source) else f"{target}, which was {source}, is gone"
    if lies(source):
        return f"{source} exists again; its former contents are at {target}"
    _back(target, source)
    return None


def put(journal: Journal, part: Path, path: Path) -> None:
    """Rename what was built to where it belongs; nothing may lie there."""
    if lies(path):
        raise ApplyError(f"{path} has appeared in the meantime; it was left alone")
    journal.begin("place", **{"from": str(part), "to": str(path), "contents": contents(part)})
    rename(part, path)
    sync_both(part, path)


def revert_place(journal: Journal, record: Record) -> str | None:
    part, path = Path(record["from"]), Path(record["to"])
    if lies(part) or not lies(path):
        # Not renamed yet, or renamed back already: what is at `path`, if anything, is not ours.
        return None
    objection = changed_since(path, record)
    if objection is None:
        _back(path, part)
    return objection


def _back(path: Path, former: Path) -> None:
    former.parent.mkdir(parents=True, exist_ok=True)
    rename(path, former)
    sync_both(path, former)


def changed_since(path: Path, placed: Record) -> str | None:
    """Why something we made may not be removed: a file in it is new or was changed. Removed ones lose nothing."""
    known = {name: tuple(key) for name, key in placed["contents"].items()}
    for name, key in contents(path).items():
        if known.get(name) != key:
            what = "was changed since" if name in known else "is new"
            return f"{path / name if name else path} {what}; move it elsewhere or delete it, then try again"
    return None
