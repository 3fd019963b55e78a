"""The quantized LoRA runner trains what a Run describes.

Only the modules of this folder import torch and diffusers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ..model.run import Run
from ..progress import Progress
from .distributed.ranks import Ranks
from .job import Job, TrainResult
from .output.trackers import tracker_refusal
from .runtime.heavy_imports import explained_imports, import_lean
from .runtime.run_lock import lock_run
from .runtime.stop_signals import interruptible
from .runtime.train_error import TrainError
from .settings.names import CACHE
from .settings.refuse import refuse

__all__ = ["Job", "Progress", "TrainError", "TrainResult", "refuse", "train"]


def train(job: Job) -> TrainResult:
    """Trains the LoRA that the job describes and writes it to its output folder.

    Raises TrainError, and KeyboardInterrupt for Ctrl-C or SIGTERM before the first step.
    """
    run, output, helper = job.run, job.output, job.text_process
    try:
        _check_settings(run, job.ranks)
        with interruptible(job.max_minutes) as stop, lock_run(output, run.name, held=job.ranks.is_first):
            if helper and job.ranks.local == 0 and not any(Path(output, CACHE).glob("text-*")):
                helper.start()
            job.progress.doing("loading PyTorch and diffusers")
            run_training = _loop(lean=helper is not None and not run.recipe.offload.compile)
            stop.heed()
            return run_training(replace(job, stop=stop))
    finally:
        job.progress.close()


def _check_settings(run: Run, ranks: Ranks) -> None:
    """Raise TrainError for settings that the runner does not follow."""
    if reasons := refuse(run):
        raise TrainError("This runner cannot train the config. " + " ".join(reasons))
    if ranks.size > 1 and run.recipe.loss.max_loss is not None:
        raise TrainError(
            "The setting max_loss caps the loss of a whole step, which several processes share. Remove it."
        )
    if no_tracker := tracker_refusal(run):
        raise TrainError(no_tracker)


def _loop(lean: bool = False) -> Callable[[Job], TrainResult]:
    """`loop.run_training`, and whatever is slow to import with it. Raises TrainError where that fails."""
    with explained_imports():
        if lean:
            import_lean("diffusers", "models.transformers")
        import diffusers.models.transformers  # noqa: F401

        from .training_run import run_training
    return run_training
