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
from collections.abc import Mapping, Sequence
from typing import Any

from .child_process import BLOCK, Ended, Tail, asked_to_stop, write

# The console gives these to every program in it, ours and the trainer.
_OF_THE_CONSOLE = (signal.SIGINT, getattr(signal, "SIGBREAK", signal.SIGINT))


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
        asked.pass_on = lambda number: None if number in _OF_THE_CONSOLE else child.send_signal(number)

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
