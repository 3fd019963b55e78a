"""A program that runs as if zdoctor were not there: its output untouched, its end and its last words known.

In a terminal the program gets a terminal of its own, so that progress bars, colours and questions stay as they are;
elsewhere, and on Windows, two pipes. Ctrl-C and SIGTERM reach the program, which decides what becomes of it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ..model.record import dataclass

MOST_BYTES = 16 << 20  # what is kept of the output: its end
BLOCK = 1 << 16
NOT_FOUND, NOT_STARTED = 127, 126
# The console gives these to every program in it, ours and the trainer.
OF_THE_CONSOLE = (signal.SIGINT, getattr(signal, "SIGBREAK", signal.SIGINT))


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


def stream(command: Sequence[str]) -> Ended:
    """Run a program to its end. Raises OSError when it cannot be started."""
    if sys.platform != "win32" and sys.stdout.isatty() and sys.stderr.isatty():
        from .pseudo_terminal import in_terminal

        return in_terminal(command)
    if sys.platform == "win32":
        shown = sys.stdout.isatty() or sys.stderr.isatty()
        return _in_pipes(as_a_shell_finds(command), as_in_a_console(os.environ) if shown else None)
    return _in_pipes(command)


def as_a_shell_finds(command: Sequence[str]) -> list[str]:
    """The command with the path of its program.

    Windows by itself looks beside the running python.exe first, which in a virtual environment is the one that the
    environment was made from, and knows no .bat or .cmd.
    """
    import shutil

    return [shutil.which(command[0]) or command[0], *command[1:]]


def as_in_a_console(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment in which a Python program writes to a pipe as it would to a console of Windows.

    There it writes UTF-8, line by line; to a pipe in the code page, in which most scripts and symbols raise
    UnicodeEncodeError, and only when its buffer is full.
    """
    return {"PYTHONIOENCODING": "utf-8", "PYTHONUNBUFFERED": "1", **environment}


def _in_pipes(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Ended:
    tail, errors, lock = Tail(), Tail(), threading.Lock()
    with asked_to_stop() as asked:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
        # SIGTERM reaches only zdoctor
        asked.pass_on = lambda number: None if number in OF_THE_CONSOLE else child.send_signal(number)

        def copy(source: Any, target: Any, *tails: Tail) -> None:
            while data := os.read(source.fileno(), BLOCK):
                with lock:
                    for kept in tails:
                        kept.add(data)
                write(target, data)

        threads = [
            threading.Thread(target=copy, args=pair, daemon=True)
            for pair in ((child.stdout, sys.stdout, tail), (child.stderr, sys.stderr, tail, errors))
        ]
        for thread in threads:
            thread.start()
        code = child.wait()
        for thread in threads:
            thread.join(1.0)  # a grandchild may hold the pipe open for ever
        for thread, pipe in zip(threads, (child.stdout, child.stderr), strict=True):
            if pipe is not None and not thread.is_alive():
                pipe.close()
    with lock:
        return Ended(code if code >= 0 else 128 - code, tail.bytes(), asked.number is not None, errors.bytes())


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
