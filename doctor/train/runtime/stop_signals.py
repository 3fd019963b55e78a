"""Signals stop a run: at once while it loads, later after the step and a checkpoint.

A limit of minutes (`--max-minutes`) ends a run in the same way, early enough for the checkpoint.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

# What is left before the limit is this many times the slowest step and the slowest save: neither is the same twice.
MARGIN = 2.0
# When the launcher of several processes began, in seconds since 1970; theirs is its age.
BEGAN = "ZDOCTOR_BEGAN"


class Stop:
    """The run looks here whether it was asked to stop; `gentle` is set while it does so by itself.

    `until` is the limit on `time.monotonic()`, None without one; `step` and `save` are the most seconds that one of
    them has taken.
    """

    def __init__(self, until: float | None = None) -> None:
        self.gentle = False
        self.asked = False
        self.raised = False
        self.until = until
        self.step = 0.0
        self.save = 0.0

    def is_set(self) -> bool:
        return self.asked or self.is_late()

    def is_late(self) -> bool:
        """Tells whether another step and a checkpoint might not fit before the limit."""
        return self.until is not None and time.monotonic() + MARGIN * (self.step + self.save) >= self.until

    def ask(self, number: int, frame: FrameType | None) -> None:
        """Handles a signal: raises KeyboardInterrupt, but the first one to a gentle runner only sets the flag."""
        if not self.gentle or (self.asked and number == signal.SIGINT):
            self.raised = True
            raise KeyboardInterrupt
        if not self.asked:
            self.asked = True
            _say("Stopping: the step that runs is finished, then all is saved. Ctrl-C once more loses that step.")

    def heed(self) -> None:
        """Raises KeyboardInterrupt again where what was interrupted has swallowed it, as imports of C code do."""
        if self.raised:
            raise KeyboardInterrupt


def _say(text: str) -> None:
    """To the terminal at once, past what is being written; of several processes one says it."""
    if os.environ.get("LOCAL_RANK", "0") == "0":
        with suppress(OSError, ValueError):  # a terminal that is closed
            os.write(sys.stderr.fileno(), f"\n{text}\n".encode())


def deadline(minutes: float) -> float:
    """Returns the moment on `time.monotonic()` that is `minutes` after the start of this process (or its
    launcher).
    """
    import psutil

    began = float(os.environ.get(BEGAN) or psutil.Process().create_time())
    return time.monotonic() - max(0.0, time.time() - began) + 60.0 * minutes


def stop_signals() -> list[signal.Signals]:
    """Returns the signals that ask to stop; that of a closed terminal not where it is ignored, as under nohup."""
    if sys.platform == "win32":
        return [signal.SIGINT, signal.SIGTERM, signal.SIGBREAK]
    closed = [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]
    return [signal.SIGINT, signal.SIGTERM, *closed]


@contextmanager
def interruptible(max_minutes: float | None = None) -> Iterator[Stop]:
    """Yields a Stop that these signals reach until the end of the block. Only the main thread can take signals."""
    stop = Stop(None if max_minutes is None else deadline(max_minutes))
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    with own_signals(stop.ask):
        try:
            yield stop
        except Exception:
            stop.heed()  # the error is only what became of the interrupt
            raise


@contextmanager
def own_signals(handler: Callable[[int, FrameType | None], Any] | None = None) -> Iterator[None]:
    """Runs the block, with the handler if there is one; then what asks to stop goes where it went before."""
    before = {number: signal.getsignal(number) for number in stop_signals()}
    try:
        for number in before if handler is not None else ():
            signal.signal(number, handler)
        yield
    finally:
        for number, earlier in before.items():
            if signal.getsignal(number) is not earlier:
                signal.signal(number, earlier)
