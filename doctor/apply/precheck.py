"""What can be known before the first byte is written: what stands against a plan is said then."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from ..model import (
    ExtractFiles,
    FetchFile,
    MakeLink,
    MirrorFolder,
    PlaceCopy,
    Quarantine,
    ReplaceText,
    SetValue,
    Step,
    WriteText,
)
from ..model.amounts import amount
from .actions import QUARANTINE, hub_root, lies
from .copy import can_reflink
from .errors import ApplyError, clause
from .extraction import require_extractable, room_of
from .link import can_link
from .steps import at, behind, copies, place, sources


def precheck(steps: list[Step]) -> int:
    """Raise ApplyError for what stands against the steps of a plan. Returns the bytes to copy."""
    made: set[Path] = set()
    taken: dict[Path, Step] = {}
    needs: dict[int, tuple[Path, int, int]] = {}
    total = 0
    for step in steps:
        path = place(step)
        _require_inside(step, path)
        before = _require_apart(step, path, taken)
        _require_sources(step, made)
        match step:
            case ExtractFiles() | MirrorFolder():
                _require_new(step, path, cleared=before is not None)
                made.add(path)
            case Quarantine():
                if not lies(path):
                    raise ApplyError(f"{path} is not there any more. Nothing was done.")
            case WriteText() | MakeLink() | PlaceCopy() | FetchFile():
                if path.is_dir() and not path.is_symlink() and not isinstance(before, Quarantine):
                    raise ApplyError(f"{path} is a folder, but a file was to be put there. Nothing was done.")
                made.add(path)
            case SetValue() | ReplaceText():
                if not path.is_file():
                    raise ApplyError(f"{path} is not there any more. Nothing was done.")
                if not os.access(path, os.W_OK):
                    raise ApplyError(f"{path} cannot be written to. Nothing was done; a copy of it can be repaired.")
                continue
        total += _need_room(step, path, needs)
    for folder, count, files in needs.values():
        _require_room(folder, count, files)
    return total


def _require_inside(step: Step, path: Path) -> None:
    """Refuse to follow a link out of a hub cache, where the files of somebody else would be written to."""
    named = at(step.target if isinstance(step, ExtractFiles | MirrorFolder) else step.path)
    root = hub_root(named)
    if root is None:
        return
    for target in (path, behind(root / QUARANTINE)):
        if behind(root) not in target.parents:
            raise ApplyError(f"{named} leads out of the cache, to {target}. Nothing was done.")


def _require_apart(step: Step, path: Path, taken: dict[Path, Step]) -> Step | None:
    """Refuse a plan whose steps get in each other's way. Returns the earlier step at the same path, which may only
    be another edit of the same text, or what moved the old thing aside."""
    before = taken.get(path)
    edits = isinstance(step, SetValue | ReplaceText) and isinstance(before, SetValue | ReplaceText)
    cleared = isinstance(before, Quarantine) and not isinstance(step, Quarantine | SetValue | ReplaceText)
    nested = any(path in other.parents or other in path.parents for other in taken)
    if nested or not (before is None or edits or cleared):
        raise ApplyError(f"The plan writes to {path} twice. Nothing was done.")
    taken[path] = step
    return before


def _require_new(step: ExtractFiles | MirrorFolder, path: Path, cleared: bool) -> None:
    if lies(path) and not cleared:
        raise ApplyError(f"{path} already exists; it was left alone. Nothing was done.")
    if isinstance(step, ExtractFiles):
        require_extractable(step, path)
    else:
        source = behind(sources(step)[0])
        if not source.is_dir():
            raise ApplyError(f"{source} is no folder. Nothing was done.")
        target = behind(path)
        if source == target or source in target.parents:
            raise ApplyError(f"{path} lies inside {source}, which it should mirror. Nothing was done.")


def _require_sources(step: Step, made: set[Path]) -> None:
    if isinstance(step, MirrorFolder):
        return
    sizes = [item.size for item in step.items] if isinstance(step, ExtractFiles) else []
    sizes = [step.prefix_size] if isinstance(step, FetchFile) and step.prefix is not None else sizes
    sizes = [step.size] if isinstance(step, PlaceCopy) else sizes
    for source, expected in zip(sources(step), sizes, strict=True):
        settled = behind(source.parent) / source.name
        if {settled, behind(source), *settled.parents} & made:
            continue
        try:
            info = source.stat()
        except OSError as error:
            raise ApplyError(f"{source} cannot be read: {clause(error)}. Nothing was done.") from error
        if not stat.S_ISREG(info.st_mode):
            raise ApplyError(f"{source} is no file. Nothing was done.")
        if info.st_size != expected:
            raise ApplyError(f"{source} is {info.st_size} bytes long and should be {expected}. Nothing was done.")


def _need_room(step: Step, path: Path, needs: dict[int, tuple[Path, int, int]]) -> int:
    """Add what the step writes to the needs of its file system. Returns the bytes it copies."""
    folder = path.parent
    while not folder.is_dir():
        if folder == folder.parent or lies(folder):
            raise ApplyError(f"{folder} is no folder. Nothing was done.")
        folder = folder.parent
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ApplyError(f"{folder} cannot be written to. Nothing was done.")
    device = folder.stat().st_dev
    _, wanted, files = needs.get(device, (folder, 0, 0))
    total = 0
    shared: dict[int, bool] = {}
    if isinstance(step, ExtractFiles):
        freed, names = room_of(step, path)
        wanted, files = wanted + freed, files + names
    for source, count in copies(step):
        total += count
        files += 1
        if count:
            device_of_source = _device(source)
            if device_of_source not in shared:
                link = (isinstance(step, PlaceCopy) and step.link) or (
                    isinstance(step, ExtractFiles) and step.hardlink
                )
                linked = link and can_link(source, folder)
                shared[device_of_source] = linked or can_reflink(source, folder)
            wanted += 0 if shared[device_of_source] else count
    needs[device] = (folder, wanted, files)
    return total


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
        raise ApplyError(f"{folder} has {amount(free)} free, but {amount(wanted)} are needed. Nothing was done.")
    if inodes is not None and files > inodes:
        raise ApplyError(f"{folder} has room for {inodes} more files, but {files} are needed. Nothing was done.")
