"""A plan becomes a change of the world, whole or not at all."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from ..model import (
    ExtractFiles,
    FetchFile,
    MakeLink,
    MirrorFolder,
    PlaceCopy,
    Plan,
    Quarantine,
    ReplaceText,
    SetValue,
    Step,
    WriteText,
)
from .actions import QUARANTINE, Key, hub_root, key_of, lies, sha, tidy
from .copy import Meter, Progress, can_reflink
from .errors import ApplyError, StalePlan, clause, size
from .extraction import require_extractable, room_of
from .journal import Journal, locked, unfinished
from .link import can_link
from .locks import hold
from .steps import at, behind, copies, describe, is_text_sized, ordered, perform, place, sources
from .undo import recover_locked, roll_back

Binding = Mapping[str, Key | None]


@dataclass(frozen=True)
class Applied:
    """A transaction that took place. `id` is what `undo` asks for, empty when the plan was empty.

    `copied` and `adopted` are bytes; the latter lay finished where an earlier extraction was cut short. `unverified`
    counts the extracted files of which nothing says what they should hold.
    """

    id: str
    what: tuple[str, ...]
    copied: int
    adopted: int = 0
    unverified: int = 0


def bind(plan: Plan) -> Binding:
    """The state a plan was made from: hashes of the texts it edits, lstat keys of all it touches or reads."""
    seen: dict[str, Key | None] = {}
    for step in plan.steps:
        path = place(step)
        seen[str(path)] = _key_at(path)
        for source in sources(step):
            seen[str(source)] = _key_behind(source)
        if isinstance(step, SetValue | ReplaceText | WriteText):
            seen[str(path)] = _text_key(path)
    return seen


def _text_key(path: Path) -> Key | None:
    """The hash of a text, of anything else what lstat tells: a pipe would never end, nor a file of 50 GB."""
    try:
        return ("text", sha(path.read_bytes()), None, None) if is_text_sized(path) else _key_at(path)
    except OSError:
        return _key_at(path)


def _key_at(path: Path) -> Key | None:
    """The key of what is there; a path that the system refuses to look at is refused when the plan is carried out."""
    try:
        return key_of(path)
    except OSError as error:
        return ("refused", 0, 0, error.strerror)


def _key_behind(path: Path) -> Key | None:
    """The key of what a link leads to."""
    try:
        info = path.stat()
    except OSError:
        return None
    if stat.S_ISDIR(info.st_mode):
        return ("folder", 0, info.st_mtime_ns, None)
    return ("file", info.st_size, info.st_mtime_ns, None)


def apply(
    plan: Plan,
    *,
    state: Path,
    binding: Binding | None = None,
    progress: Progress | None = None,
    group: str | None = None,
) -> Applied:
    """Carry out every fix of the plan, or nothing.

    `state` is zdoctor's state folder, `binding` what `bind` said when the plan was made, `progress` is called with
    (bytes copied, bytes to copy, file); `group` is the id of the first pass when a repair takes several, so that one
    undo takes all of them back. Raises StalePlan or ApplyError; the world is then as before. Ctrl-C too
    takes everything back before it goes on as KeyboardInterrupt, and so does an error of our own. What an
    extraction had finished stays beside its target, and the message says so.
    """
    from ..receipts import Receipts  # brings threads along, which undo and history do without

    groups = ordered(plan)
    if not groups:
        return Applied("", (), 0)
    with locked(state), ExitStack() as held:
        recover_locked(state)
        stuck = unfinished(state)
        if stuck:
            raise ApplyError(f"An earlier change, {stuck[0].id}, cannot be taken back yet: see {stuck[0].folder}.")
        if binding is not None:
            _require_unchanged(plan, binding)
        try:
            total = _precheck([step for group in groups for step in group])
        except OSError as error:
            raise ApplyError(f"{clause(error)}. Nothing was done.") from error
        what = tuple(describe(step) for group in groups for step in group)
        meter, receipts = Meter(total, progress), Receipts(state)
        try:
            journal = Journal.create(state, plan.config, what, group)
        except OSError as error:
            raise ApplyError(f"The journal cannot be written, so nothing was changed: {clause(error)}.") from error
        try:
            hold([step for group in groups for step in group], journal, held)
            for steps in groups:
                perform(steps, journal, meter, receipts)
            tidy(journal)
            journal.log({"do": "applied"})
        except BaseException as error:
            left = roll_back(journal)
            kept = "".join(f" {text}." for text in journal.kept_parts)
            if isinstance(error, KeyboardInterrupt):
                error.args = (kept.strip(),) if kept else ()
            if not isinstance(error, ApplyError | OSError):
                raise
            after = "Everything is as before." if not left else f"Not taken back: {'; '.join(left)}."
            raise ApplyError(f"{clause(error)}. {after}{kept}") from error
        return Applied(journal.id, what, meter.done, meter.adopted, _unverified(plan))


def _unverified(plan: Plan) -> int:
    extractions = [step for step in plan.steps if isinstance(step, ExtractFiles)]
    return sum(item.digest is None for step in extractions for item in step.items)


def _require_unchanged(plan: Plan, binding: Binding) -> None:
    now = bind(plan)
    for path in sorted({*now, *binding}):
        if now.get(path) != binding.get(path):
            raise StalePlan(f"{path} has changed since the plan was made. Nothing was done; check again.")


def _precheck(steps: list[Step]) -> int:
    """Everything that can be known before the first byte is written. Returns the bytes to copy."""
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
                    raise ApplyError(f"{path} cannot be written to. Nothing was done.")
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
        raise ApplyError(f"{folder} has {size(free)} free, but {size(wanted)} are needed. Nothing was done.")
    if inodes is not None and files > inodes:
        raise ApplyError(f"{folder} has room for {inodes} more files, but {files} are needed. Nothing was done.")
