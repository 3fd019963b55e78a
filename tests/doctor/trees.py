"""What the tests of the writer share: a tree as a value, and a plan from steps."""

from __future__ import annotations

import stat
from pathlib import Path

from zdoctor.doctor.apply.actions.part import made_folders
from zdoctor.doctor.model import Fix, Plan, Step

Tree = dict[str, tuple[object, ...]]


def snapshot(folder: Path) -> Tree:
    """Every name below `folder` with its kind, mode, bytes or link target, and for files the modification time."""
    found: Tree = {}
    for path in sorted(folder.rglob("*")):
        info = path.lstat()
        name, mode = path.relative_to(folder).as_posix(), stat.S_IMODE(info.st_mode)
        if path.is_symlink():
            found[name] = ("link", str(path.readlink()), info.st_mtime_ns)
        elif path.is_dir():
            found[name] = ("folder", mode)
        else:
            found[name] = ("file", mode, path.read_bytes(), info.st_mtime_ns)
    return found


def without_parts(home: Path) -> Tree:
    """The tree as if what cut-short extractions kept had been deleted, with the folders that were made for it."""
    tree = snapshot(home)
    for part in home.rglob("*.zdoctor-part"):
        made = {Path(folder).relative_to(home).as_posix() for folder in made_folders(part)}
        name = part.relative_to(home).as_posix()
        tree = {at: what for at, what in tree.items() if at not in made and not f"{at}/".startswith(f"{name}/")}
    return tree


def plan(*steps: Step) -> Plan:
    return Plan("config.yaml", (Fix("test", tuple(steps)),))
