"""Ctrl-C and SIGTERM: at once while things are loaded, after the step and a checkpoint once training has begun."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stop:
    """Whether the run was asked to stop. `gentle` is set while the runner looks at it by itself."""

    def __init__(self) -> None:
        self.gentle = False
        self.asked = False

    def is_set(self) -> bool:
        return self.asked

    def ask(self, number: int, frame: FrameType | None) -> None:
        """The handler: raises KeyboardInterrupt, but the first signal to a gentle runner only sets the flag."""
        if not self.gentle or (self.asked and number == signal.SIGINT):
            raise KeyboardInterrupt
        self.asked = True


@contextmanager
def interruptible() -> Iterator[Stop]:
    """A Stop that SIGINT and SIGTERM reach until the end of the block. Only the main thread can take signals."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, stop.ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
