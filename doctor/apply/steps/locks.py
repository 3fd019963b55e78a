"""The hub client's own locks: whoever replaces a file of a cache holds its lock, as a download does."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from ..actions.build import ensure_folder
from ..actions.errors import ApplyError
from ..actions.journal import Journal
from ..actions.paths import hub_root, lies

PATIENCE = 0.1  # seconds: enough for a try or two, since a download holds its lock to the end


def locks_of(path: Path, digest: str | None, repo: str = "") -> set[Path]:
    """The lock of one content of a cache, or of one file below a folder that was downloaded with --local-dir.

    `repo` names the folder of its locks where that is not the one that `path` lies in; none where it is not known.
    """
    root = hub_root(path)
    if root is not None:
        repo = repo or root.name
        if digest is None or "--" not in repo:
            return set()
        return {root.parent / ".locks" / repo / f"{digest.rpartition(':')[2]}.lock"}
    for folder in path.parents:
        notes = folder / ".cache" / "huggingface" / "download"
        if notes.is_dir():
            return {notes / f"{path.relative_to(folder)}.lock"}
    return set()


def hold(locks: Iterable[Path], journal: Journal, held: ExitStack) -> None:
    """Take every lock until `held` is closed; raises ApplyError when a download holds one.

    A lock file that is new stays, as the client leaves its own; taking the repair back removes it.
    """
    for lock in sorted(locks):
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
