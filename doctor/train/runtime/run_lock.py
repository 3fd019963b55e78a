"""One runner per run: two that write the same files would each undo what the other saved."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...model.remains import own_lock
from .train_error import TrainError


@contextmanager
def alone(folder: Path, name: str, *, held: bool = True) -> Iterator[None]:
    """Make the output folder and hold the run's lock, which ends with the process, however that ends.

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
        if not taken(handle.fileno()):
            raise TrainError(f"Another zdoctor train is writing to {folder}. Wait for it, or stop it.")
        yield


def taken(descriptor: int) -> bool:
    """Whether the lock is ours now; also true on file systems that have no locks."""
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
