"""What is alike of a program that `stream` runs, in a terminal of its own or by pipes: its end, words and signals."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..model.record import dataclass

MOST_BYTES = 16 << 20  # what is kept of the output: its end
BLOCK = 1 << 16
NOT_FOUND, NOT_STARTED = 127, 126


@dataclass(frozen=True)
class Ended:
    """`code` as a shell has it (128 + the signal's number), `stopped` when zdoctor was asked to end it.

    `tail` is the end of all output, `errors` that of standard error where it is a stream of its own.
    """

    code: int
    tail: bytes
    stopped: bool
    errors: bytes = b""


class Tail:
    """The last bytes of a stream."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self.most = most
        self.kept = bytearray()

    def add(self, data: bytes) -> None:
        self.kept += data
        if len(self.kept) > 2 * self.most:
            del self.kept[: -self.most]

    def bytes(self) -> bytes:
        return bytes(self.kept[-self.most :])


def write(target: Any, data: bytes) -> None:
    """To the stream's own bytes. A reader who has gone away does not end the program."""
    try:
        target.flush()
        raw = target.buffer
        raw.write(data)
        raw.flush()
    except (OSError, ValueError):
        return


class _Asked:
    def __init__(self) -> None:
        self.number: int | None = None
        self.pass_on: Callable[[int], None] = lambda number: None

    def __call__(self, number: int, _: Any) -> None:
        self.number = number
        try:
            self.pass_on(number)
        except (OSError, ProcessLookupError):
            return


@contextmanager
def asked_to_stop() -> Iterator[_Asked]:
    """Ctrl-C and SIGTERM go to the program; zdoctor waits for it. A closed terminal is nothing to it under nohup."""
    asked = _Asked()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    names = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        numbers.remove(signal.SIGHUP)
    kept = {number: signal.signal(number, asked) for number in numbers}
    try:
        yield asked
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
