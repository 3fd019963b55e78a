"""A lock keeps two runners from writing the same files."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...model.remains import own_lock
from .train_error import TrainError


@contextmanager
def lock_run(folder: Path, name: str, *, held: bool = True) -> Iterator[None]:
    """Makes the output folder and holds the run's lock, which ends with the process.

    With `held` false another process of the same run holds it.
    Raises TrainError when another runner holds it or nothing can be written there.
    """
    if not held:
        yield
        return
    file = folder / own_lock(name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = file.open("ab")
    except OSError as error:
        raise TrainError(f"The output folder {folder} cannot be written: {error.strerror or error}.") from error
    with handle:
        if not try_lock(handle.fileno()):
            raise TrainError(f"Another zdoctor train is writing to {folder}. Wait for it, or stop it.")
        yield


def try_lock(descriptor: int) -> bool:
    """Tells whether the lock is ours now; also true on file systems that have no locks."""
    if sys.platform == "win32":
        import msvcrt

        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
