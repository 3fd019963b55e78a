"""Bytes, names and JSON Lines that are on the disk when the call returns; renaming that waits for other programs."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

Row = dict[str, Any]
# Windows renames and replaces nothing that another program has open, nor a folder with such a file in it: virus
# scanners and the search index open what was just written.
TRIES = 20 if sys.platform == "win32" else 1
TRY_SECONDS = 0.1


def write_durably(path: Path, data: bytes, mode: str = "xb") -> None:
    with path.open(mode) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def append_rows(path: Path, *rows: Row, mode: int = 0o666) -> None:
    """Add lines to a file, which is made with this mode; a torn last line, left by a kill, is closed first."""
    with open(path, "a+b", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        torn = False
        if file.tell() > 0:
            file.seek(-1, os.SEEK_END)
            torn = file.read() != b"\n"
        file.write(b"\n" * torn + json_lines(*rows))
        file.flush()
        os.fsync(file.fileno())


def json_lines(*rows: Row) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode("ascii")


def rows_of(data: bytes) -> list[Row]:
    """The records of JSON Lines; what a kill tore is none."""
    return [value for value in values_of(data) if isinstance(value, dict)]


def values_of(data: bytes) -> list[Any]:
    """Every value of JSON Lines, a record or not; what a kill tore is none."""
    found = []
    for line in data.split(b"\n"):
        with suppress(ValueError, RecursionError):
            found.append(json.loads(line))
    return found


def sync_both(source: Path, target: Path) -> None:
    """Force to disk that something was renamed."""
    sync_folder(target.parent)
    if source.parent != target.parent:
        sync_folder(source.parent)


def sync_folder(folder: Path) -> None:
    """Force the names in a folder to disk, where the system can: Windows cannot, some file systems refuse."""
    if sys.platform == "win32":
        return
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def rename(source: Path, target: Path) -> None:
    """Give `source` another name, at which nothing lies."""
    _patiently(source.rename, target)


def replace(source: Path, target: Path) -> None:
    """Give `source` the place of another file, if there is one."""
    _patiently(source.replace, target)


def _patiently(move: Callable[[Path], Path], target: Path) -> None:
    for left in reversed(range(TRIES)):
        try:
            move(target)
            return
        except PermissionError:
            if not left:
                raise
            time.sleep(TRY_SECONDS)
