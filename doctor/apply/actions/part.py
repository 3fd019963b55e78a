"""The folder in which an extraction grows. What is finished in it outlives a kill; the next run goes on from there.

    <target>.zdoctor-part/manifest.jsonl    a header, then one receipt for each finished file, each forced to disk
    <target>.zdoctor-part/lock              held by whoever works in the folder
    <target>.zdoctor-part/files/            becomes <target> by one rename, when it is complete

A receipt holds what the file should be and its size, mtime and ctime. A file without a matching one was in the making
and is made anew.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ...files.durable import append_rows, rows_of, sync_folder
from ...model import CopyItem, ExtractFiles
from ...model.amounts import amount
from ...model.record import dataclass
from .errors import ApplyError, Busy
from .paths import contents

SCHEMA = "zdoctor.part/1"
MANIFEST_LIMIT = 32 << 20

FileKey = list[int]


def part_of(target: Path) -> Path:
    """Where the extraction to `target` grows: beside it, so that one rename puts it in place."""
    return target.with_name(f"{target.name}.zdoctor-part")


def files_of(part: Path) -> Path:
    return part / "files"


def _manifest(part: Path) -> Path:
    return part / "manifest.jsonl"


@dataclass(frozen=True)
class Finished:
    """A finished file: what it is a copy of (`of`, as `_identity` says it) and its (size, mtime_ns, ctime_ns)."""

    of: str
    key: FileKey

    @property
    def size(self) -> int:
        return self.key[0]


def is_foreign(part: Path) -> bool:
    """Whether something lies at `part` that no extraction of this user made: its receipts are believed.

    What a power cut leaves of a manifest is ours. So is what belongs to the owner of the folder above: some file
    systems give everything one owner, and whoever owns that folder could do as they like anyway.
    """
    try:
        info = part.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    owners = (os.geteuid(), part.parent.stat().st_uid) if hasattr(os, "geteuid") else (info.st_uid,)
    if not stat.S_ISDIR(info.st_mode) or info.st_uid not in owners or files_of(part).is_symlink():
        return True
    header, _ = _read(part)
    with os.scandir(part) as entries:
        ours = all(e.name == "lock" or (e.name == _manifest(part).name and not e.stat().st_size) for e in entries)
    return header is None and not ours


def finished(part: Path) -> dict[str, Finished]:
    """The finished files by name. The folders that lead to one are real ones, no links."""
    _, receipts = _read(part)
    there = contents(files_of(part)) if receipts else {}
    return {name: one for name, one in receipts.items() if name in there and _key(files_of(part) / name) == one.key}


def adopted(step: ExtractFiles, part: Path) -> dict[str, Finished]:
    """The finished files that are what the step wants; the others of the part folder are of no use to it."""
    here = finished(part)
    return {item.name: here[item.name] for item in step.items if item.name in here and _fits(step, item, part, here)}


def _fits(step: ExtractFiles, item: CopyItem, part: Path, here: dict[str, Finished]) -> bool:
    done = here[item.name]
    try:
        linked = os.path.samefile(item.source, files_of(part) / item.name)
        return (step.hardlink or not linked) and done.size == item.size and done.of == _identity(item)
    except OSError:
        return False


def _identity(item: CopyItem) -> str:
    """What the file is: its digest. Where nobody published one, the state of its source."""
    return item.digest or f"{item.source} of {os.stat(item.source).st_mtime_ns}"


def made_folders(part: Path) -> list[str]:
    """The folders above the target that the run which began this part made."""
    header, _ = _read(part)
    return [] if header is None else [folder for folder in header.get("folders", []) if isinstance(folder, str)]


@contextmanager
def held(part: Path, folders: Collection[Path] = ()) -> Iterator[None]:
    """Nobody else works in the part folder, which is made when there is none. Raises Busy."""
    from filelock import FileLock, Timeout

    require_own(part)
    part.mkdir(exist_ok=True)
    lock = FileLock(part / "lock", timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        raise Busy(f"Another zdoctor is at work in {part}. Wait until it is done.") from error
    except (OSError, NotImplementedError):
        pass  # a file system without locks
    try:
        if _read(part)[0] is None:
            append_rows(_manifest(part), {"schema": SCHEMA, "folders": [str(folder) for folder in folders]})
            sync_folder(part)
            sync_folder(part.parent)
        yield
    finally:
        lock.release()


def require_own(part: Path) -> None:
    if is_foreign(part):
        raise ApplyError(
            f"{part} is in the way, and no extraction of yours made it. Move it, or choose another target"
        )


def receipt(part: Path, item: CopyItem) -> None:
    """Note that a file is finished, once its bytes are on the disk."""
    row = {"name": item.name, "of": _identity(item), "key": _key(files_of(part) / item.name)}
    append_rows(_manifest(part), row)


def prune(part: Path, keep: Collection[str]) -> None:
    """Remove what is not to be kept from the files of a part folder, empty folders as well."""
    files = files_of(part)
    for name, key in sorted(contents(files).items(), reverse=True):  # a folder comes after what lies in it
        if key[0] != "folder" and name not in keep:
            (files / name).unlink()
        elif key[0] == "folder" and name:
            with suppress(OSError):
                (files / name).rmdir()


def settle(part: Path) -> None:
    """After an extraction was cut short: only what is finished stays; without any, nothing does."""
    if is_foreign(part) or not part.is_dir():
        return
    try:
        with held(part):
            kept = finished(part)
            prune(part, kept)
    except Busy:
        return  # someone has gone on with it
    if not kept:
        discard(part)


def discard(part: Path) -> None:
    """Remove a part folder, finished files and all."""
    if files_of(part).is_dir():
        shutil.rmtree(files_of(part))
    close(part)


def kept_in(part: Path) -> str | None:
    """What a part folder holds, in words for the person whose extraction was cut short; None when there is none."""
    here = finished(part)
    if not here:
        return None
    total, count = amount(sum(done.size for done in here.values())), len(here)
    files = f"{count} finished files, {total}, are" if count != 1 else f"1 finished file, {total}, is"
    return f"{files} kept in {part}: the same command goes on from there; to give it up, delete that folder"


def has_manifest(part: Path) -> bool:
    return os.path.lexists(_manifest(part))


def close(part: Path) -> None:
    """Remove what is left of a part folder when its files are in place."""
    with suppress(FileNotFoundError):
        _manifest(part).unlink(missing_ok=True)
        (part / "lock").unlink(missing_ok=True)
        if not os.listdir(part):  # else someone has put something there
            part.rmdir()
        sync_folder(part.parent)


def _key(path: Path) -> FileKey | None:
    """Neither device nor inode: both may change when the disk is mounted again."""
    try:
        info = path.lstat()
    except OSError:
        return None
    return [info.st_size, info.st_mtime_ns, info.st_ctime_ns] if stat.S_ISREG(info.st_mode) else None


def _read(part: Path) -> tuple[dict[str, Any] | None, dict[str, Finished]]:
    """The header, None when the folder has no manifest of ours, and the receipts, of which the last one counts."""
    try:
        with _manifest(part).open("rb") as file:
            rows = rows_of(file.read(MANIFEST_LIMIT))
    except OSError:
        return None, {}
    header = next((row for row in rows if row.get("schema") == SCHEMA), None)
    receipts: dict[str, Finished] = {}
    for row in rows if header is not None else ():
        name, of, key = row.get("name"), row.get("of"), row.get("key")
        if isinstance(name, str) and isinstance(of, str) and isinstance(key, list):
            receipts[name] = Finished(of, key)
    return header, receipts
