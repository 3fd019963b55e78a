"""The loss log is losses.jsonl in the run's folder, one JSON object a line, for programs and plots."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..runtime.atomic_files import write_atomic
from ..runtime.train_error import TrainError


class LossLog:
    """The log is appended to; what a killed run had written beyond its last checkpoint goes at the start.

    Lines are {"step", "loss", "lr", "seconds"} for a step (counted from 1) and {"step", "eval_loss"} for an
    evaluation after it. A loss that is not finite is null.
    """

    def __init__(self, file: Path, losses: Sequence[float]) -> None:
        """`losses`: those of the checkpoint, one a step; none for a new run, of which nothing is kept.

        A step that the file lacks (another process saved for one that was killed) gets a line without the rest.
        """
        self.file = file
        lines = [line for line in _read(file) if line["step"] <= len(losses)] if losses else []
        there = {line["step"] for line in lines if "loss" in line}
        lines += [
            {"step": step, "loss": _finite(loss), "lr": None, "seconds": None}
            for step, loss in enumerate(losses, 1)
            if step not in there
        ]
        self.lines = sorted(lines, key=lambda line: (line["step"], "eval_loss" in line))
        write_atomic(file, "".join(f"{json.dumps(line)}\n" for line in self.lines).encode())
        with self._written():
            self.stream = file.open("a", encoding="utf-8")

    @property
    def evaluations(self) -> list[tuple[int, float]]:
        """The (step, validation loss) of every evaluation in the log."""
        return [(line["step"], line["eval_loss"]) for line in self.lines if line.get("eval_loss") is not None]

    def step(self, step: int, loss: float, rate: float, seconds: float) -> None:
        self._write({"step": step, "loss": _finite(loss), "lr": rate, "seconds": round(seconds, 4)})

    def evaluation(self, step: int, loss: float) -> None:
        self._write({"step": step, "eval_loss": _finite(loss)})

    def sync(self) -> None:
        """Flushes the log to the disk, since a checkpoint must not know more than the log."""
        with self._written():
            os.fsync(self.stream.fileno())

    def close(self) -> None:
        with suppress(OSError):  # a line that could not be written, which was said then
            self.stream.close()

    def _write(self, line: dict[str, Any]) -> None:
        self.lines.append(line)
        with self._written():
            self.stream.write(f"{json.dumps(line)}\n")
            self.stream.flush()

    @contextmanager
    def _written(self) -> Iterator[None]:
        """Raises TrainError in place of OSError."""
        try:
            yield
        except OSError as error:
            raise TrainError(f"{self.file} cannot be written: {error.strerror or error}.") from error


def _read(file: Path) -> list[dict[str, Any]]:
    """The whole lines; the last one of a killed run may be half there."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    lines: list[dict[str, Any]] = []
    for row in text.splitlines():
        try:
            line = json.loads(row)
        except ValueError:
            continue
        if isinstance(line, dict) and isinstance(line.get("step"), int):
            lines.append(line)
    return lines


def _finite(loss: float) -> float | None:
    return loss if math.isfinite(loss) else None
