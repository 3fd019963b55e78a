"""A program that runs as if zdoctor were not there: its output untouched, its end and its last words known.

In a terminal the program gets a terminal of its own, so that progress bars, colours and questions stay as they are;
elsewhere two pipes. Ctrl-C and SIGTERM reach the program, which decides what becomes of it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .model.record import dataclass

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


def stream(command: Sequence[str]) -> Ended:
    """Run a program to its end. Raises OSError when it cannot be started."""
    if os.name == "posix" and sys.stdout.isatty() and sys.stderr.isatty():
        return _in_terminal(command)
    return _in_pipes(command)


def _in_pipes(command: Sequence[str]) -> Ended:
    tail, errors, lock = Tail(), Tail(), threading.Lock()
    with _asked_to_stop() as asked:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        # Ctrl-C reaches both, as they share a terminal; SIGTERM only zdoctor
        asked.pass_on = lambda number: None if number == signal.SIGINT else child.send_signal(number)

        def copy(source: Any, target: Any, *tails: Tail) -> None:
            while data := os.read(source.fileno(), BLOCK):
                with lock:
                    for kept in tails:
                        kept.add(data)
                _write(target, data)

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


def _in_terminal(command: Sequence[str]) -> Ended:
    import pty
    import select

    tail = Tail()
    keys = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
    ready, report = os.pipe()  # closed by a successful exec, else it says why there was none
    os.set_inheritable(report, False)
    child, screen = pty.fork()
    if child == 0:
        try:
            os.close(ready)
            os.execvp(command[0], list(command))
        except OSError as error:
            os.write(report, str(error.errno).encode())
        os._exit(NOT_FOUND)
    os.close(report)
    failed = os.read(ready, 16)
    os.close(ready)
    if failed:
        os.waitpid(child, 0)
        os.close(screen)
        number = int(failed)
        raise OSError(number, os.strerror(number), command[0])
    with _asked_to_stop() as asked, _raw(keys), _resized(screen):
        asked.pass_on = lambda number: os.killpg(child, number)
        sources = [screen] if keys is None else [screen, keys]
        while True:
            for source in select.select(sources, [], [])[0]:
                try:
                    data = os.read(source, BLOCK)
                except OSError:  # Linux: the last program on that terminal is gone
                    data = b""
                if source == screen and data:
                    tail.add(data)
                    _write(sys.stdout, data)
                elif source != screen and data:
                    os.write(screen, data)
                else:
                    sources.remove(source)
            if screen not in sources:
                break
        status = os.waitpid(child, 0)[1]
    os.close(screen)
    code = os.waitstatus_to_exitcode(status)
    stopped = asked.number is not None or code == -signal.SIGINT
    return Ended(code if code >= 0 else 128 - code, tail.bytes(), stopped)


def _write(target: Any, data: bytes) -> None:
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
def _asked_to_stop() -> Iterator[_Asked]:
    """Ctrl-C and SIGTERM go to the program; zdoctor waits for it."""
    asked = _Asked()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    names = ("SIGINT", "SIGTERM", "SIGHUP")
    before = {getattr(signal, name): None for name in names if hasattr(signal, name)}
    kept = {number: signal.signal(number, asked) for number in before}
    try:
        yield asked
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


@contextmanager
def _raw(keys: int | None) -> Iterator[None]:
    """What is typed goes to the program as it is, Ctrl-C too."""
    if keys is None:
        yield
        return
    import termios
    import tty

    before = termios.tcgetattr(keys)
    try:
        tty.setraw(keys)
        yield
    finally:
        termios.tcsetattr(keys, termios.TCSADRAIN, before)


@contextmanager
def _resized(screen: int) -> Iterator[None]:
    """The program's terminal is as large as ours, also when ours is made larger."""
    import fcntl
    import struct
    import termios

    def copy(*_: Any) -> None:
        size = fcntl.ioctl(sys.stdout.fileno(), termios.TIOCGWINSZ, struct.pack("HHHH", 0, 0, 0, 0))
        fcntl.ioctl(screen, termios.TIOCSWINSZ, size)

    copy()
    before = signal.signal(signal.SIGWINCH, copy)
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)
