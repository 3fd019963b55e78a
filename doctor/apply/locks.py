"""The hub client's own locks: whoever replaces a file of a cache holds its lock, as a download does."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from ..model import FetchFile, PlaceCopy, Quarantine, Step
from .actions import ensure_folder, hub_root, lies
from .errors import ApplyError
from .journal import Journal
from .steps import place

PATIENCE = 0.1  # seconds: enough for a try or two, since a download holds its lock to the end


def lock_of(step: Step) -> Path | None:
    """The lock of the hub client for what a step replaces; None for a file that the client has nothing to do with."""
    path = place(step)
    root = hub_root(path)
    if root is None:
        return _lock_of_folder(path) if isinstance(step, FetchFile | PlaceCopy) else None
    repo = root.name
    match step:
        case FetchFile(digest=str(digest)):
            repo, address = "models--" + step.repo.replace("/", "--"), digest.partition(":")[2]
        case PlaceCopy(digest=str(digest)):
            address = digest.partition(":")[2]
        case Quarantine() if path.parent == root / "blobs" and path.name.endswith(".incomplete"):
            address = path.name.partition(".")[0]
        case _:
            return None
    return root.parent / ".locks" / repo / f"{address}.lock" if "--" in repo else None


def _lock_of_folder(path: Path) -> Path | None:
    """The lock of one file below a folder that was downloaded with --local-dir."""
    for folder in path.parents:
        notes = folder / ".cache" / "huggingface" / "download"
        if notes.is_dir():
            return notes / f"{path.relative_to(folder)}.lock"
    return None


def hold(steps: Iterable[Step], journal: Journal, held: ExitStack) -> None:
    """Take the lock of every step until `held` is closed; raises ApplyError when a download holds one.

    A lock file that is new stays, as the client leaves its own; taking the repair back removes it.
    """
    for lock in sorted({lock for step in steps if (lock := lock_of(step)) is not None}):
        from filelock import Timeout
        from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]

        ensure_folder(journal, lock.parent)
        if not lies(lock):
            journal.begin("part", path=str(lock), lock=True)
        try:
            held.enter_context(WeakFileLock(lock, timeout=PATIENCE))
        except Timeout as error:
            text = f"Another process is downloading this content right now: it holds {lock}. Wait until it is done"
            raise ApplyError(text) from error
