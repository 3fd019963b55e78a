"""`zdoctor check --watch`: looks again whenever a file changes that the last look rested on."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping

INTERVAL = 0.5  # seconds between two looks at the files
Stamp = tuple[int, int] | None


def stamp(file: str) -> Stamp:
    """Time and size of a file or folder; None where nothing can be seen."""
    try:
        seen = os.stat(file)
    except (OSError, ValueError):
        return None
    return seen.st_mtime_ns, seen.st_size


def watch(
    look: Callable[[], Iterable[str]],
    wait: Callable[[], None] = lambda: time.sleep(INTERVAL),
    stamp: Callable[[str], Stamp] = stamp,
) -> None:
    """Look, and again after each change of a file that the last look names; ends with Ctrl-C.

    A file that changes while it is looked at is looked at once more.
    """
    seen: Mapping[str, Stamp] = {}
    try:
        while True:
            before = {file: stamp(file) for file in seen}
            seen = {file: before[file] if file in before else stamp(file) for file in look()}
            while all(stamp(file) == was for file, was in seen.items()):
                wait()
    except KeyboardInterrupt:
        return
