"""Long work is told: on one line of a terminal that is drawn again and again, elsewhere by a line now and then."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import TextIO

from ..model.amounts import amount
from ..model.columns import cells, cut, padded
from ..model.printable import printable
from ..model.said import said

FIRST = 0.5  # seconds; what is done by then was not slow
DRAW = 0.25
LINE, LONGEST = 5.0, 30.0  # seconds between two lines of a log
STEPS = 10.0
TURNS = "|/-\\"  # each encoding of a terminal has them


class Progress:
    """Whoever works calls these methods; here they do nothing.

    `count` is how many of the phase's pieces are done, `step`'s loss the mean of that step, its rate steps per second
    (0.0 while unknown); `bytes_done` counts those of all files while `name` is read or written, and with a total of 0
    `name` says what takes its time.
    """

    def phase(self, text: str) -> None:
        """What begins, as a line that stays."""

    def doing(self, text: str = "") -> None:
        """What begins, told only while it lasts."""

    def count(self, done: int, total: int, pieces: str) -> None: ...

    def bytes_done(self, done: int, total: int, name: str) -> None: ...

    def step(self, step: int, total: int, loss: float, rate: float) -> None: ...

    def note(self, text: str) -> None: ...

    def close(self) -> None: ...

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Told(Progress):
    """A thread of its own tells what is being done, so that also work that tells nothing of itself is not silent."""

    def __init__(self, stream: TextIO, *, live: bool) -> None:
        self.stream, self.live = stream, live
        self.lock = threading.RLock()
        self.ended = threading.Event()
        self.thread: threading.Thread | None = None
        self.text = ""
        self.drawn = 0  # columns of the line that is shown now
        self.turn = 0
        self.began = self.last = self.moved = time.monotonic()  # the work, the last line, the bytes
        self.timed = True  # whether its seconds are told
        self.stepped: float | None = None
        self.total = 0  # bytes

    def phase(self, text: str) -> None:
        self._line(said(text))
        self.doing()

    def note(self, text: str) -> None:
        self._line(f"{said('note')}: {said(text)}")

    def doing(self, text: str = "") -> None:
        with self.lock:
            self.began, self.timed = time.monotonic(), True
            self._show(text)

    def count(self, done: int, total: int, pieces: str) -> None:
        self._show(f"{done} of {total} {pieces}")

    def bytes_done(self, done: int, total: int, name: str) -> None:
        if not total:
            self.doing(name)
            return
        if total != self.total:
            self.total, self.moved = total, time.monotonic()
        rate = done / max(time.monotonic() - self.moved, 1e-3)
        left = f"  {_left((total - done) / rate)}" if done else ""
        short = "/".join(name.replace("\\", "/").rsplit("/", 2)[-2:])
        self._show(f"{done / total:4.0%}  {amount(done)} of {amount(total)}, {amount(int(rate))}/s{left}  {short}")

    def step(self, step: int, total: int, loss: float, rate: float) -> None:
        text, now = f"step {step}/{total}  loss {loss:.4f}{_speed(rate)}", time.monotonic()
        if self.live:
            self.timed = False
            self._show(text + (f"  {_left((total - step) / rate)}" if rate > 0.0 else ""))
        elif self.stepped is None or now - self.stepped >= STEPS or step == total:
            self.stepped, self.timed = now, False
            self._line(text)

    def close(self) -> None:
        thread, self.thread = self.thread, None
        if thread is not None:
            self.ended.set()
            thread.join()
        self._clear()

    def _show(self, text: str) -> None:
        with self.lock:
            self.text = printable(said(text))
            if self.thread is None:
                self.ended = threading.Event()
                self.thread = threading.Thread(target=self._tell, args=(self.ended,), daemon=True)
                self.thread.start()

    def _tell(self, ended: threading.Event) -> None:
        while not ended.wait(DRAW):
            with self.lock:
                now = time.monotonic()
                passed, quiet = now - self.began, now - self.last
                if self.live and quiet >= FIRST:
                    self._draw(passed)
                elif not self.live and self.timed and quiet >= min(max(LINE, passed / 2), LONGEST):
                    self._line(f"  {self.text}{', ' * bool(self.text)}{said(f'{_clock(passed)} so far')}")

    def _draw(self, passed: float) -> None:
        from shutil import get_terminal_size

        self.turn = (self.turn + 1) % len(TURNS)
        told = f"{TURNS[self.turn]} {self.text}{'  ' * bool(self.text)}{_clock(passed) if self.timed else ''}"
        told = cut(told, max(20, get_terminal_size().columns) - 1)
        self._write("\r" + padded(told, self.drawn))
        self.drawn = cells(told)

    def _line(self, text: str) -> None:
        with self.lock:
            self._clear()
            self._write(f"{text}\n")
            self.last = time.monotonic()

    def _clear(self) -> None:
        with self.lock:
            if self.drawn:
                self._write("\r" + " " * self.drawn + "\r")
                self.drawn = 0

    def _write(self, text: str) -> None:
        try:
            self.stream.write(text)
            self.stream.flush()
        except (OSError, ValueError):  # nobody reads it any more, which ends no work
            self.drawn = 0


def open_progress(stream: TextIO | None = None) -> Progress:
    """The progress of a person's terminal, or of a log; of standard error where no stream is named."""
    stream = stream or sys.stderr
    if stream is None:  # a program without a console
        return Progress()
    return Told(stream, live=stream.isatty() and os.environ.get("TERM") != "dumb")


def _speed(rate: float) -> str:
    if rate <= 0.0:
        return ""
    return f"  {rate:.2f} it/s" if rate >= 1.0 else f"  {1.0 / rate:.1f} s/it"


def _left(seconds: float) -> str:
    return said(f"{_clock(seconds)} left")


def _clock(seconds: float) -> str:
    """12 s, 3:05, 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{rest:02}"
    return f"{minutes}:{rest:02}" if minutes else f"{rest} s"
