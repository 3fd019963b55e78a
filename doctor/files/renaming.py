"""Renaming, also where another program looks at the file for a moment.

Windows renames and replaces nothing that another program has open, nor a folder with such a file in it: virus
scanners and the search index open what was just written.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

TRIES = 20 if sys.platform == "win32" else 1
TRY_SECONDS = 0.1


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
