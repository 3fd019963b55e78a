"""The state of a training run, from which it goes on exactly."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor


@dataclass
class TrainingState:
    """Everything that a resumed run needs; `identity` is what must be the same, in words for the message."""

    identity: dict[str, str]
    seed: int
    step: int
    losses: list[float]
    lora: dict[str, Tensor]
    optimizer: dict[str, Any]
    ema: dict[str, Tensor] | None
    held_out: int = 0
    held: list[str] = field(default_factory=list)  # by the sha256 of their bytes
    optimizer_kind: str = ""  # the name of its class
    captions: dict[str, str] = field(default_factory=dict)  # and what else dataset_changes.py tells of the pictures
    bad: list[int] = field(default_factory=list)  # the last steps whose loss or gradient was not finite
