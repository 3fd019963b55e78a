"""The six things that ever happen to the world, each announced in the journal first, and how each is taken back.

    edit     the bytes of an existing file are replaced
    move     something is renamed
    part     something new is built under a temporary name
    place    it is renamed to where it belongs
    folder   an empty folder is made
    scratch  a folder of our own, gone at the end

A step is made of these, so a rollback after an error, after a kill and an undo are one function: `revert`.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .errors import ApplyError
from .journal import Journal, Record, sync_folder

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


def ensure_folder(journal: Journal, folder: Path) -> None:
    """Make a folder and its missing parents, each one noted."""
    missing: list[Path] = []
    while not lies(folder):
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        journal.begin("folder", path=str(path))
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


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
    _rewrite(journal, n, path, temporary, data)


def _rewrite(journal: Journal, n: int, path: Path, temporary: Path, data: bytes) -> None:
    info = path.stat()
    if info.st_nlink == 1:
        try:
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                _take_after(file.fileno(), path, temporary, info)
                os.fsync(file.fileno())
            temporary.replace(path)
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
    if hasattr(os, "fchown") and (info.st_uid, info.st_gid) != (os.geteuid(), os.getegid()):
        os.fchown(descriptor, info.st_uid, info.st_gid)
    shutil.copystat(path, temporary)
    os.utime(temporary)


def move(journal: Journal, source: Path, target: Path) -> None:
    """Rename; the target must not exist."""
    ensure_folder(journal, target.parent)
    if lies(target):
        raise ApplyError(f"{target} is in the way; move it and try again")
    journal.begin("move", **{"from": str(source), "to": str(target)})
    source.rename(target)
    _sync_both(source, target)


def make(journal: Journal, path: Path, build: Callable[[Path], None], *, instead: bool = False) -> None:
    """Let `build` make something under a temporary name, then rename it to `path`.

    With `instead`, what lies at `path` goes into quarantine once the new thing is complete, and a file passes on its
    mode; otherwise nothing may lie there.
    """
    part = aside(path, journal.id, "part")
    ensure_folder(journal, path.parent)
    ensure_folder(journal, part.parent)
    journal.begin("part", path=str(part))
    build(part)
    if part.is_dir() and not part.is_symlink():
        _sync_tree(part)
    if instead and lies(path):
        if path.is_file() and not path.is_symlink() and not part.is_symlink():
            part.chmod(stat.S_IMODE(path.stat().st_mode))
        move(journal, path, aside(path, journal.id, "quarantine"))
    if lies(path):
        raise ApplyError(f"{path} has appeared in the meantime; it was left alone")
    journal.begin("place", **{"from": str(part), "to": str(path), "contents": contents(part)})
    part.rename(path)
    _sync_both(part, path)


def _sync_both(source: Path, target: Path) -> None:
    sync_folder(target.parent)
    if source.parent != target.parent:
        sync_folder(source.parent)


def _sync_tree(folder: Path) -> None:
    for root, _, _ in os.walk(folder):
        sync_folder(Path(root))


def scratch(journal: Journal, folder: Path) -> Path:
    """A folder for our own use, removed at the end, whatever the end is."""
    ensure_folder(journal, folder.parent)
    journal.begin("scratch", path=str(folder))
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
        elif record["do"] == "folder" and QUARANTINE in path.parts:
            _remove_if_empty(path)


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
        case "part":
            _remove(Path(record["path"]))
        case "folder":
            _remove_if_empty(Path(record["path"]))
        case "scratch":
            shutil.rmtree(record["path"], ignore_errors=True)
    return None


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
        _rewrite(journal, record["n"], path, temporary, before)
    info = path.stat()
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
    target.rename(source)
    _sync_both(target, source)
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
    path.rename(part)
    _sync_both(path, part)
    return None


def changed_since(path: Path, placed: Record) -> str | None:
    """Why something we made may not be removed: a file in it is new or was changed. Removed ones lose nothing."""
    known = {name: tuple(key) for name, key in placed["contents"].items()}
    for name, key in contents(path).items():
        if known.get(name) != key:
            what = "was changed since" if name in known else "is new"
            return f"{path / name if name else path} {what}; move it away if you need it no more, then try again"
    return None


def _remove(ours: Path) -> None:
    if ours.is_dir() and not ours.is_symlink():
        shutil.rmtree(ours)
    elif lies(ours):
        ours.unlink()


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return
    sync_folder(folder.parent)
