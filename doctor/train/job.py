"""What `train` was asked for, and with whom it works."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..model.run import Run
from .encode.text_process import TextProcess
from .processes.ranks import Ranks
from .progress import Progress
from .stop import Stop


@dataclass(frozen=True)
class Job:
    """The words of `zdoctor.doctor.train.train`. The output folder exists, and no other run writes to it."""

    run: Run
    model: Path
    extras: Path | None
    parts: Mapping[str, Path]
    adapter: Path | None
    datasets: Mapping[str, str]
    output: Path
    device: str | None
    held_out: int | None
    skip_unreadable: bool
    ranks: Ranks
    text_process: TextProcess | None
    progress: Progress
    stop: Stop
