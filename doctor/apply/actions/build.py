"""Five actions on the tree of files: a folder is made, something new is built under a temporary name, put where it
belongs, something is renamed, and a folder of our own comes and goes."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ...files.durable import rename, replace, sync_both, sync_folder
from .errors import ApplyError
from .journal import Journal, Record
from .part import close, discard, has_manifest, settle
from .paths import QUARANTINE, aside, contents, is_real_folder, lies


def ensure_folder(journal: Journal, folder: Path) -> tuple[Path, ...]:
    """Make a folder and its missing parents, each one noted. Returns those that were missing, outermost first."""
    missing: list[Path] = []
    while not lies(folder):
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        journal.begin("folder", path=str(path))
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)
    return tuple(reversed(missing))


def revert_folder(journal: Journal, record: Record) -> None:
    remove_if_empty(Path(record["path"]))


def remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return
    sync_folder(folder.parent)


def scratch(journal: Journal, folder: Path, salvage: Record | None = None) -> Path:
    """A folder for our own use, removed at the end, whatever the end is.

    `salvage` names a file of it (`from`) and where that goes (`to`) when the transaction fails and it has grown
    beyond `size` bytes.
    """
    ensure_folder(journal, folder.parent)
    journal.begin("scratch", path=str(folder), salvage=salvage)
    folder.mkdir()
    return folder


def revert_scratch(journal: Journal, record: Record) -> None:
    with suppress(OSError):
        _salvage(record)
    shutil.rmtree(record["path"], ignore_errors=True)


def _salvage(record: Record) -> None:
    """Keep a download as far as it came. It is no part of the cache, only worth its bytes to the next repair."""
    salvage = record.get("salvage")
    if salvage is None:
        return
    source, target = Path(record["path"]) / salvage["from"], Path(salvage["to"])
    if source.stat().st_size > salvage["size"]:
        target.parent.mkdir(exist_ok=True)
        replace(source, target)
        sync_both(source, target)


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


def moved_since(record: Record, there: Callable[[Path], bool] = lies) -> str | None:
    """Why something may not be moved back, by what lies where."""
    source, target = Path(record["from"]), Path(record["to"])
    if not there(target):
        return None if there(source) else f"{target}, which was {source}, is gone"
    return f"{source} exists again; its former contents are at {target}" if there(source) else None


def revert_move(journal: Journal, record: Record) -> str | None:
    objection = moved_since(record)
    if objection is None and lies(Path(record["to"])):
        _back(Path(record["to"]), Path(record["from"]))
    return objection


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


def changed_since(path: Path, placed: Record, settled: Collection[Path] = ()) -> str | None:
    """Why something we made may not be removed: a file in it is new or was changed. Removed ones lose nothing.

    What lies at or below a `settled` path is another action's, which is taken back before.
    """
    known = {name: tuple(key) for name, key in placed["contents"].items()}
    for name, key in contents(path).items():
        if known.get(name) != key and settled and {path / name, *(path / name).parents} & set(settled):
            continue
        if known.get(name) != key:
            what = "was changed since" if name in known else "is new"
            return f"{path / name if name else path} {what}; move it elsewhere or delete it, then try again"
    return None


def make(journal: Journal, path: Path, build: Callable[[Path], None], *, instead: bool = False) -> None:
    """Let `build` make something under a temporary name, then rename it to `path`.

    With `instead`, what lies at `path` goes into quarantine once the new thing is complete, and a file passes on its
    mode; otherwise nothing may lie there.
    """
    part = aside(path, journal.id, "part")
    ensure_folder(journal, path.parent)
    ensure_folder(journal, part.parent)
    journal.begin("part", path=str(part))
    with names(part):
        build(part)
    if is_real_folder(part):
        sync_tree(part)
    if instead and lies(path):
        if path.is_file() and not path.is_symlink() and not part.is_symlink() and part.stat().st_nlink == 1:
            part.chmod(stat.S_IMODE(path.stat().st_mode))
        move(journal, path, aside(path, journal.id, "quarantine"))
    put(journal, part, path)


@contextmanager
def names(part: Path) -> Iterator[None]:
    """A full disk shows when bytes are written, and then the system names no file: it is `part`."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(part)
        raise


def sync_tree(folder: Path) -> None:
    for root, _, _ in os.walk(folder):
        sync_folder(Path(root))


def revert_part(journal: Journal, record: Record) -> None:
    part = Path(record["path"])
    if not record.get("kept"):
        _remove(part)
    elif not has_manifest(part):  # it was complete, and came back from where it was put
        discard(part)
    elif not journal.said("undoing"):  # else a later extraction is at work there
        settle(part)


def _remove(ours: Path) -> None:
    if is_real_folder(ours):
        shutil.rmtree(ours)
    elif lies(ours):
        ours.unlink()


def tidy(journal: Journal) -> None:
    """At the end of a transaction: our scratch folders, and what of our quarantine folders stayed empty."""
    for record in reversed(journal.actions):
        path = Path(record.get("path", ""))
        if record["do"] == "scratch":
            shutil.rmtree(path, ignore_errors=True)
        elif record.get("kept"):
            close(path)
        elif record["do"] == "folder" and QUARANTINE in path.parts:
            remove_if_empty(path)
