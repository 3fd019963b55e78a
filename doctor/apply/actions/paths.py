"""What lies at a path, and where something of it may lie under another name."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from ...model import Step

QUARANTINE = ".zdoctor-quarantine"
_HUB_FOLDERS = ("models--", "datasets--", "spaces--")

Key = tuple[Any, ...]


def at(path: str) -> Path:
    """The absolute path of a step, links unresolved."""
    return Path(os.path.abspath(path))


def behind(path: Path) -> Path:
    """The file that a path leads to, links resolved as far as they go; a loop of links ends somewhere in it."""
    return Path(os.path.realpath(path))


def place(step: Step) -> Path:
    """What the step writes to. Folders above are resolved: a path must not lead through what it replaces."""
    path = at(step.path)
    return behind(path.parent) / path.name


def lies(path: Path) -> bool:
    """Whether anything is at `path`, a dangling link included."""
    return key_of(path) is not None


def is_real_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


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


def contents(path: Path) -> dict[str, Key]:
    """The key of everything at and below `path`, by its name relative to it ("" for itself).

    But what Python compiles beside its modules, which it makes anew.
    """
    key = key_of(path)
    if key is None:
        return {}
    found = {"": key}
    if key[0] == "folder":
        for root, folders, files in os.walk(path):
            folders[:] = [name for name in folders if name != "__pycache__"]
            for name in (*folders, *files):
                below = Path(root) / name
                below_key = key_of(below)
                if below_key is not None:
                    found[below.relative_to(path).as_posix()] = below_key
    return found


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
