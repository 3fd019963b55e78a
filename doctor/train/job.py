"""A job is what `train` was asked for; a result is what it gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..model.run import Run
from .distributed.ranks import Ranks
from .encode.text_encoder_process import TextEncoderProcess
from .runtime.progress import Progress
from .runtime.stop_signals import Stop


@dataclass(frozen=True)
class Job:
    """The arguments of `zdoctor.doctor.train.train`, checked.

    The output folder exists, and no other run writes to it.
    """

    run: Run
    model: Path
    extras: Path | None
    components: Mapping[str, Path]
    adapter: Path | None
    datasets: Mapping[str, str]
    output: Path
    device: str | None
    held_out: int | None
    skip_unreadable: bool
    ranks: Ranks
    text_process: TextEncoderProcess | None
    progress: Progress
    stop: Stop


@dataclass(frozen=True)
class TrainResult:
    """`lora` ("" where no step was done) and `samples` are paths; `losses` has one mean loss per step since step 0,
    resumed steps included. `evaluations` are (step, evaluation loss).

    "interrupted" says that somebody asked to stop, which can also be while the last previews are painted.
    """

    lora: str
    steps: int
    losses: tuple[float, ...]
    samples: tuple[str, ...]
    seconds: float
    stopped: Literal["finished", "interrupted"]
    evaluations: tuple[tuple[int, float], ...] = ()
