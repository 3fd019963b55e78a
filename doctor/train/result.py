"""What a training run gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


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
