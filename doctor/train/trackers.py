"""TensorBoard always, where it is installed; Weights & Biases when the config asks for it."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..model.run import Run
from .errors import TrainError

WANDB = "logging/use_wandb"
WANDB_EVERY = 100


class Trackers:
    """Hands numbers on by step. TensorBoard is imported at the first number: nothing waits for it before."""

    def __init__(self, run: Run, output: Path, record: Mapping[str, Any], note: Callable[[str], None]) -> None:
        self.folder = output / "tensorboard"
        self.first = int(record["starts"][-1]["step"]) + 1
        self.board: Any = None
        self.has_board = importlib.util.find_spec("tensorboard") is not None
        if not self.has_board:
            note(
                "TensorBoard is not installed, so its event files are not written; losses.jsonl and report.html hold "
                "the same. To get it, type: pip install tensorboard (before the next start)."
            )
        self.every = int(run.setting("logging/log_every", WANDB_EVERY)) or WANDB_EVERY
        self.wandb = _wandb(run, output, record) if run.setting(WANDB) else None

    def log(self, step: int, values: Mapping[str, float], *, always: bool = False) -> None:
        """Numbers after `step`. W&B gets every log_every-th step, as in ai-toolkit, and what is `always`."""
        if self.has_board:
            if self.board is None:
                from torch.utils.tensorboard import SummaryWriter

                make: Any = SummaryWriter
                self.board = make(log_dir=str(self.folder), purge_step=self.first)
            for name, value in values.items():
                self.board.add_scalar(name, value, step)
        if self.wandb is not None and (always or step % self.every == 0):
            self.wandb.log(dict(values), step=step)

    def close(self) -> None:
        if self.board is not None:
            self.board.close()
        if self.wandb is not None:
            self.wandb.finish()


def refused(run: Run) -> str:
    """Why the tracker that the config asks for cannot be, "" when it can. Imports nothing."""
    if run.setting(WANDB) and importlib.util.find_spec("wandb") is None:
        where = run.where(WANDB)
        return (
            f"The config asks for Weights & Biases (use_wandb, line {where.line}), which is not installed here. "
            "Type: pip install wandb, or set use_wandb: false."
        )
    return ""


def _wandb(run: Run, output: Path, record: Mapping[str, Any]) -> Any:
    """A W&B run; a resumed training goes on with its own."""
    import wandb  # type: ignore[import-not-found,unused-ignore]

    first = f"{output.absolute()} {record['starts'][0]['at']}"
    try:
        return wandb.init(
            project=str(run.setting("logging/project_name", "ai-toolkit")),
            name=str(run.setting("logging/run_name", run.name)),
            id=hashlib.sha256(first.encode()).hexdigest()[:16],
            resume="allow",
            dir=str(output),
            config=dict(record["settings"]),
        )
    except Exception as error:  # no login, no network, no such project: each with a type of its own
        raise TrainError(
            f"Weights & Biases does not start ({error}). Type: wandb login, or set WANDB_MODE=offline, or set "
            "use_wandb: false in the config."
        ) from error
