"""All that is applied and taken back here keeps a rule of Windows: what is open or mapped keeps its name."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HANDLES, MAPS = Path("/proc/self/fd"), Path("/proc/self/maps")


def in_use() -> Iterator[str]:
    """The files that this process has open or mapped."""
    for handle in HANDLES.iterdir():
        path = os.path.realpath(handle)
        if os.path.isfile(path):
            yield path
    with MAPS.open(encoding="utf-8", errors="replace") as lines:
        yield from (line[line.index("/") :].rstrip("\n") for line in lines if "/" in line)


def refuse(path: Any, folder: int | None = None) -> None:
    """Raise PermissionError where the file, or one in the folder, is in use."""
    start = os.getcwd() if folder is None else os.readlink(HANDLES / str(folder))
    parent, name = os.path.split(os.path.join(start, os.fsdecode(path)))
    full = os.path.join(os.path.realpath(parent), name)
    for one in in_use():
        if one == full or one.startswith(f"{full}/"):
            raise PermissionError(errno.EACCES, "it is being used by another process", full)


@pytest.fixture(autouse=True)
def names_are_kept_while_files_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    if not MAPS.exists():
        return

    def moving(plain: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
        def move(source: Any, target: Any) -> None:
            refuse(source)
            if os.path.isfile(target) and not os.path.islink(target):
                refuse(target)
            plain(source, target)

        return move

    plain_unlink = os.unlink

    def unlink(path: Any, *, dir_fd: int | None = None) -> None:
        refuse(path, dir_fd)
        plain_unlink(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "rename", moving(os.rename))
    monkeypatch.setattr(os, "replace", moving(os.replace))
    monkeypatch.setattr(os, "unlink", unlink)
