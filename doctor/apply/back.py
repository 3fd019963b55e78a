"""How each action of `actions.py` is taken back, from whatever point it had reached when it was cut short."""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

from ..files.renaming import rename, replace
from .actions import contents, lies, remove_if_empty, rewrite, sha, sync_both
from .journal import Journal, Record
from .part import discard, has_manifest, settle


def revert(journal: Journal, record: Record) -> str | None:
    """Take one action back, from whatever point it had reached. Idempotent until its `reverted` record is written.

    Returns why not, in words, where something would be lost; that is then left as it is.
    """
    match record["do"]:
        case "edit":
            return _revert_edit(journal, record)
        case "move":
            return _revert_move(record)
        case "place":
            return _revert_place(record)
        case "part" if record.get("kept"):
            _revert_part(journal, Path(record["path"]))
        case "part":
            _remove(Path(record["path"]))
        case "folder":
            remove_if_empty(Path(record["path"]))
        case "scratch":
            with suppress(OSError):
                _salvage(record)
            shutil.rmtree(record["path"], ignore_errors=True)
    return None


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


def _revert_edit(journal: Journal, record: Record) -> str | None:
    path, temporary = Path(record["path"]), Path(record["temporary"])
    if lies(temporary):
        temporary.unlink()
    objection = edited_since(journal, record)
    if objection is not None:
        return objection
    before = journal.kept(f"{record['n']}.before")
    if path.read_bytes() != before:
        temporary.parent.mkdir(parents=True, exist_ok=True)
        rewrite(journal, record["n"], path, temporary, before)
    info = path.stat()
    # Only its owner may set the times of a file; for anyone else, who may write to it, the contents are what counts.
    with suppress(PermissionError):
        if stat.S_IMODE(info.st_mode) != record["mode"]:
            path.chmod(record["mode"])
        if info.st_mtime_ns != record["mtime_ns"]:
            os.utime(path, ns=(info.st_atime_ns, record["mtime_ns"]))
    return None


def edited_since(journal: Journal, record: Record) -> str | None:
    """Why the former contents of a file may not be put back: someone else has written to it, or it is gone."""
    path = Path(record["path"])
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return f"{path} is gone; its former contents are in {journal.folder / str(record['n'])}.before"
    if sha(data) in (record["before"], record["after"]):
        return None
    if journal.said("in-place", record["n"]) is not None and _half_written(journal, record["n"], data):
        return None
    return f"{path} was edited since; its former contents are in {journal.folder / str(record['n'])}.before"


def _half_written(journal: Journal, n: int, data: bytes) -> bool:
    """Whether `data` is what a kill leaves while one version is written over the other: a head and a tail."""
    before, after = journal.kept(f"{n}.before"), journal.kept(f"{n}.after")
    for old, new in ((before, after), (after, before)):
        done = _shared(data, new)
        if data[done:] == old[done:]:
            return True
    return False


def _shared(one: bytes, other: bytes) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def _revert_move(record: Record) -> str | None:
    source, target = Path(record["from"]), Path(record["to"])
    if not lies(target):
        return None if lies(source) else f"{target}, which was {source}, is gone"
    if lies(source):
        return f"{source} exists again; its former contents are at {target}"
    source.parent.mkdir(parents=True, exist_ok=True)
    rename(target, source)
    sync_both(target, source)
    return None


def _revert_place(record: Record) -> str | None:
    part, path = Path(record["from"]), Path(record["to"])
    if lies(part) or not lies(path):
        # Not renamed yet, or renamed back already: what is at `path`, if anything, is not ours.
        return None
    objection = changed_since(path, record)
    if objection is not None:
        return objection
    part.parent.mkdir(parents=True, exist_ok=True)
    rename(path, part)
    sync_both(path, part)
    return None


def _revert_part(journal: Journal, part: Path) -> None:
    if not has_manifest(part):  # it was complete, and came back from where it was put
        discard(part)
    elif not journal.has("undoing"):  # else a later extraction is at work there
        settle(part)


def changed_since(path: Path, placed: Record) -> str | None:
    """Why something we made may not be removed: a file in it is new or was changed. Removed ones lose nothing."""
    known = {name: tuple(key) for name, key in placed["contents"].items()}
    for name, key in contents(path).items():
        if known.get(name) != key:
            what = "was changed since" if name in known else "is new"
            return f"{path / name if name else path} {what}; move it elsewhere or delete it, then try again"
    return None


def _remove(ours: Path) -> None:
    if ours.is_dir() and not ours.is_symlink():
        shutil.rmtree(ours)
    elif lies(ours):
        ours.unlink()
