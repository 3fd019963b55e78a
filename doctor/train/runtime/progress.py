"""Progress is shown as a bar on terminals and as plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any, TextIO


class Progress:
    """The runner calls these methods; here they do nothing.

    `loss` is that step's mean loss, `rate` steps per second (0.0 while unknown).
    """

    def phase(self, text: str) -> None: ...

    def step(self, step: int, total: int, loss: float, rate: float) -> None: ...

    def note(self, text: str) -> None: ...

    def close(self) -> None: ...


class Lines(Progress):
    """Each phase and note is a line, and a step at most every `every` seconds (and the last)."""

    def __init__(self, stream: TextIO | None = None, every: float = 10.0) -> None:
        self.stream = stream or sys.stderr
        self.every = every
        self.last: float | None = None

    def phase(self, text: str) -> None:
        self._write(text)

    def note(self, text: str) -> None:
        self._write(f"note: {text}")

    def step(self, step: int, total: int, loss: float, rate: float) -> None:
        now = time.monotonic()
        if self.last is None or now - self.last >= self.every or step == total:
            self.last = now
            self._write(f"step {step}/{total}  loss {loss:.4f}{_speed(rate)}")

    def _write(self, text: str) -> None:
        print(text, file=self.stream, flush=True)


class Bar(Progress):
    """A rich progress bar shows the loss and the speed; notes scroll above it."""

    def __init__(self, stream: TextIO | None = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self.console = Console(file=stream or sys.stderr, highlight=False)
        drawn = (TextColumn("{task.description}"), BarColumn()) if self.console.width >= 60 else ()
        self.bar: Any = RichProgress(
            *drawn,  # a narrow terminal has room for the numbers only, and would cut them off
            MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]}"),
            TextColumn("{task.fields[speed]}"),
            TimeRemainingColumn(),
            console=self.console,
        )
        self.task: Any = None

    def phase(self, text: str) -> None:
        self.console.print(text, markup=False)

    def note(self, text: str) -> None:
        self.console.print(f"note: {text}", markup=False, style="yellow")

    def step(self, step: int, total: int, loss: float, rate: float) -> None:
        fields = {"loss": f"{loss:.4f}", "speed": _speed(rate).strip()}
        if self.task is None:
            self.bar.start()
            self.task = self.bar.add_task("training", total=total, completed=step, **fields)
        else:
            self.bar.update(self.task, completed=step, **fields)

    def close(self) -> None:
        if self.task is not None:
            self.bar.stop()
            self.task = None


def default_progress(stream: TextIO | None = None) -> Progress:
    """Returns a bar on a terminal, plain lines elsewhere."""
    target = stream or sys.stderr
    return Bar(target) if target.isatty() else Lines(target)


def _speed(rate: float) -> str:
    if rate <= 0.0:
        return ""
    return f"  {rate:.2f} it/s" if rate >= 1.0 else f"  {1.0 / rate:.1f} s/it"


def plural(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
