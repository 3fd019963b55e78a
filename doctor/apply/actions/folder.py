"""Two actions: an empty folder is made, and a folder of our own that is gone at the end."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from ...files.durable import sync_both, sync_folder
from ...files.renaming import replace
from .journal import Journal, Record
from .paths import lies


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
