"""What the steps of a plan need before the first byte is written, and what they are carried out with."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from ...model.amounts import amount
from ...model.record import dataclass
from ...state.receipts import Receipts
from ..actions.build import ensure_folder
from ..actions.copy import Meter, can_link, can_reflink
from ..actions.errors import ApplyError, clause
from ..actions.journal import Journal
from ..actions.paths import behind, hub_root, lies

PATIENCE = 0.1  # seconds: enough for a try or two, since a download holds its lock to the end


class Needs:
    """Gathered step by step. Every method raises ApplyError for what stands against the plan.

    `made` and `cleared` are what earlier steps put somewhere and moved away, `locks` those of the hub client,
    `copied` the bytes to copy; `online` when something has to be downloaded.
    """

    def __init__(self) -> None:
        self.made: set[Path] = set()
        self.cleared: set[Path] = set()
        self.locks: set[Path] = set()
        self.copied = 0
        self.online = False
        self._room: dict[int, tuple[Path, int, int]] = {}  # by device: a folder of it, bytes, names

    def new_folder(self, path: Path) -> None:
        """Nothing lies at `path`, where a step will make a folder."""
        if lies(path) and path not in self.cleared:
            raise ApplyError(f"{path} already exists; it was left alone")
        self.made.add(path)

    def file_place(self, path: Path) -> None:
        """No folder lies at `path`, where a step will put a file or a link."""
        if path.is_dir() and not path.is_symlink() and path not in self.cleared:
            raise ApplyError(f"{path} is a folder, but a file was to be put there")
        self.made.add(path)

    def source(self, source: Path, size: int) -> None:
        """A file of this size (bytes) that can be read, unless an earlier step makes it."""
        settled = behind(source.parent) / source.name
        if {settled, behind(source), *settled.parents} & self.made:
            return
        try:
            info = source.stat()
        except OSError as error:
            raise ApplyError(f"{source} cannot be read: {clause(error)}") from error
        if not stat.S_ISREG(info.st_mode):
            raise ApplyError(f"{source} is no file")
        if info.st_size != size:
            raise ApplyError(f"{source} is {info.st_size} bytes long and should be {size}")

    def room(
        self,
        path: Path,
        copies: Iterable[tuple[Path, int]] = (),
        *,
        link: bool = False,
        size: int = 0,
        names: int = 0,
    ) -> None:
        """A folder for `path` that can be written to, with room for copies of (source, bytes) and `size` bytes more.

        `link`: hard links will do in place of copies.
        """
        folder = path.parent
        while not folder.is_dir():
            if folder == folder.parent or lies(folder):
                raise ApplyError(f"{folder} is no folder")
            folder = folder.parent
        if not os.access(folder, os.W_OK | os.X_OK):
            raise ApplyError(f"{folder} cannot be written to")
        device = folder.stat().st_dev
        _, wanted, files = self._room.get(device, (folder, 0, 0))
        shared: dict[int, bool] = {}
        for source, count in copies:
            self.copied += count
            names += 1
            if count:
                origin = _device(source)
                if origin not in shared:
                    shared[origin] = (link and can_link(source, folder)) or can_reflink(source, folder)
                size += 0 if shared[origin] else count
        self._room[device] = (folder, wanted + size, files + names)

    def require_room(self) -> None:
        """Every file system has room for all that was asked of it."""
        for folder, wanted, files in self._room.values():
            _require_room(folder, wanted, files)


@dataclass(frozen=True)
class Work:
    """One transaction: its journal, who counts its bytes, and which files are known to be unchanged."""

    journal: Journal
    meter: Meter
    receipts: Receipts


def _device(path: Path) -> int:
    try:
        return path.stat().st_dev
    except OSError:  # a download, or what an earlier step will make
        return -1


def _require_room(folder: Path, wanted: int, files: int) -> None:
    if not hasattr(os, "statvfs"):
        free, inodes = shutil.disk_usage(folder).free, None
    else:
        room = os.statvfs(folder)
        free, inodes = room.f_bavail * room.f_frsize, room.f_favail if room.f_files else None
    wanted += wanted // 100
    if wanted > free:
        raise ApplyError(f"{folder} has {amount(free)} free, but {amount(wanted)} are needed")
    if inodes is not None and files > inodes:
        raise ApplyError(f"{folder} has room for {inodes} more files, but {files} are needed")


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
