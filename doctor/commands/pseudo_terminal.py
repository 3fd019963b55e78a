"""A program in a terminal of its own, which `stream` shows in ours. POSIX only."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .child_process import BLOCK, NOT_FOUND, Ended, Tail, asked_to_stop, write

assert sys.platform != "win32"


def in_terminal(command: Sequence[str]) -> Ended:
    """Run a program to its end. Raises OSError when it cannot be started."""
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
    with asked_to_stop() as asked, _raw(keys), _resized(screen):
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
                    write(sys.stdout, data)
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
