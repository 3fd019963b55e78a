"""The six things that ever happen to the world, each announced in the journal first, and how each is taken back.

    edit     the bytes of an existing file are replaced
    move     something is renamed
    part     something new is built under a temporary name; `kept`: what is finished of it outlives a failure
    place    it is renamed to where it belongs
    folder   an empty folder is made
    scratch  a folder of our own, gone at the end; `salvage`: what of it outlives a failure

A step is made of these, so a rollback after an error, after a kill and an undo are one function: `revert`.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..files.renaming import rename, replace
from .errors import ApplyError
from .journal import Journal, Record, sync_folder
from .part import close

QUARANTINE = ".zdoctor-quarantine"
_HUB_FOLDERS = ("models--", "datasets--", "spaces--")
# A file that was mounted by itself (Docker), a folder that may not be written to: only writing in place is left.
_NOT_BY_RENAMING = (errno.EBUSY, errno.EACCES, errno.EPERM, errno.EROFS, errno.EXDEV)

Key = tuple[Any, ...]


def lies(path: Path) -> bool:
    """Whether anything is at `path`, a dangling link included."""
    return key_of(path) is not None


def key_of(path: Path) -> Key | None:
    """What tells whether something changed: (kind, size, mtime_ns, link target); None when nothing is there."""
    try:
        info = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISLNK(info.st_mode):
        return ("link", 0, 0, str(path.readlink()))
    if stat.S_ISDIR(info.st_mode):
        return ("folder", 0, 0, None)
    kind = "file" if stat.S_ISREG(info.st_mode) else "other"
    return (kind, info.st_size, info.st_mtime_ns, None)


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def hub_root(path: Path) -> Path | None:
    """The folder of a hub cache in which a stray name disturbs no scan: the repository's, or the shared store's."""
    for parent in path.parents:
        if parent.name.startswith(_HUB_FOLDERS):
            return parent
        if parent.name == "blobs" and (parent / ".huggingface-shared-blobs").is_file():
            return parent
    return None


def aside(path: Path, id: str, what: str) -> Path:
    """Where something of `path` may lie under another name, on the same file system.

    Inside a hub cache, under `<repository>/.zdoctor-quarantine/<id>/`: a stray name in snapshots/ or refs/ makes
    huggingface_hub call the whole repository corrupt. Elsewhere beside the file.
    """
    root = hub_root(path)
    if root is None:
        return path.parent / f"{path.name}.zdoctor-{what}-{id}"
    return root / QUARANTINE / id / what / path.relative_to(root)


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


def edit(journal: Journal, path: Path, data: bytes) -> None:
    """Replace the contents of a file; its mode, and its owner where we may, stay. A link's target is edited."""
    path = path.resolve()
    before = path.read_bytes()
    if before == data:
        return
    info = path.stat()
    temporary = aside(path, journal.id, "part")
    if hub_root(path) is not None:
        ensure_folder(journal, temporary.parent)
    n = journal.next
    journal.keep(f"{n}.before", before)
    journal.keep(f"{n}.after", data)
    journal.begin(
        "edit",
        path=str(path),
        temporary=str(temporary),
        mode=stat.S_IMODE(info.st_mode),
        mtime_ns=info.st_mtime_ns,
        before=sha(before),
        after=sha(data),
    )
    rewrite(journal, n, path, temporary, data)


def rewrite(journal: Journal, n: int, path: Path, temporary: Path, data: bytes) -> None:
    info = path.stat()
    if info.st_nlink == 1:
        try:
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                _take_after(file.fileno(), path, temporary, info)
                os.fsync(file.fileno())
            replace(temporary, path)
            sync_folder(path.parent)
            return
        except OSError as error:
            if error.errno not in _NOT_BY_RENAMING:
                raise
            if lies(temporary):
                temporary.unlink()
    journal.log({"do": "in-place", "n": n})
    with path.open("r+b") as file:
        file.write(data)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


def _take_after(descriptor: int, path: Path, temporary: Path, info: os.stat_result) -> None:
    """Give the temporary file the owner, mode and extended attributes of the file it will replace."""
    if sys.platform != "win32" and (info.st_uid, info.st_gid) != (os.geteuid(), os.getegid()):
        os.fchown(descriptor, info.st_uid, info.st_gid)
    shutil.copystat(path, temporary)
    os.utime(temporary)


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


def put(journal: Journal, part: Path, path: Path) -> None:
    """Rename what was built to where it belongs; nothing may lie there."""
    if lies(path):
        raise ApplyError(f"{path} has appeared in the meantime; it was left alone")
    journal.begin("place", **{"from": str(part), "to": str(path), "contents": contents(part)})
    rename(part, path)
    sync_both(part, path)


def sync_both(source: Path, target: Path) -> None:
    sync_folder(target.parent)
    if source.parent != target.parent:
        sync_folder(source.parent)


def sync_tree(folder: Path) -> None:
    for root, _, _ in os.walk(folder):
        sync_folder(Path(root))


def scratch(journal: Journal, folder: Path, salvage: Record | None = None) -> Path:
    """A folder for our own use, removed at the end, whatever the end is.

    `salvage` names a file of it (`from`) and where that goes (`to`) when the transaction fails and it has grown
    beyond `size` bytes.
    """
    ensure_folder(journal, folder.parent)
    journal.begin("scratch", path=str(folder), salvage=salvage)
    folder.mkdir()
    return folder


def contents(path: Path) -> dict[str, Key]:
    """The key of everything at and below `path`, by its name relative to it ("" for itself)."""
    key = key_of(path)
    if key is None:
        return {}
    found = {"": key}
    if key[0] == "folder":
        for root, folders, files in os.walk(path):
            for name in (*folders, *files):
                below = Path(root) / name
                below_key = key_of(below)
                if below_key is not None:
                    found[below.relative_to(path).as_posix()] = below_key
    return found


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


def remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return
    sync_folder(folder.parent)
