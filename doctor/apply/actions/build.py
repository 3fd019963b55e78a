"""An action: something new is built under a temporary name, and then renamed to where it belongs."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

from ...files.durable import sync_folder
from .folder import ensure_folder, remove_if_empty
from .journal import Journal, Record
from .part import close, discard, has_manifest, settle
from .paths import QUARANTINE, aside, lies
from .rename import move, put


def make(journal: Journal, path: Path, build: Callable[[Path], None], *, instead: bool = False) -> None:
    """Let `build` make something under a temporary name, then rename it to `path`.

    With `instead`, what lies at `path` goes into quarantine once the new thing is complete, and a file passes on its
    mode; otherwise nothing may lie there.
    """
    part = aside(path, journal.id, "part")
    ensure_folder(journal, path.parent)
    ensure_folder(journal, part.parent)
    journal.begin("part", path=str(part))
    try:
        build(part)
    except OSError as error:
        # a full disk shows when bytes are written, and then the system names no file
        error.filename = error.filename or str(part)
        raise
    if part.is_dir() and not part.is_symlink():
        sync_tree(part)
    if instead and lies(path):
        if path.is_file() and not path.is_symlink() and not part.is_symlink() and part.stat().st_nlink == 1:
            part.chmod(stat.S_IMODE(path.stat().st_mode))
        move(journal, path, aside(path, journal.id, "quarantine"))
    put(journal, part, path)


def sync_tree(folder: Path) -> None:
    for root, _, _ in os.walk(folder):
        sync_folder(Path(root))


def revert_part(journal: Journal, record: Record) -> None:
    part = Path(record["path"])
    if not record.get("kept"):
        _remove(part)
    elif not has_manifest(part):  # it was complete, and came back from where it was put
        discard(part)
    elif not journal.has("undoing"):  # else a later extraction is at work there
        settle(part)


def _remove(ours: Path) -> None:
    if ours.is_dir() and not ours.is_symlink():
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
