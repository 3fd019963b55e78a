"""The quantized LoRA runner. Only the modules of this folder import torch and diffusers."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from ..model.run import Run
from .errors import TrainError
from .lock import alone
from .progress import Progress, Silent, default_progress
from .ranks import Ranks
from .refuse import refuse
from .result import TrainResult
from .stop import interruptible
from .trackers import refused

__all__ = ["Progress", "TrainError", "TrainResult", "default_progress", "refuse", "train"]


def train(
    run: Run,
    *,
    model_folder: str,
    extras_folder: str | None = None,
    adapter_file: str | None = None,
    dataset_folders: Mapping[str, str],
    output_folder: str,
    device: str | None = None,
    max_minutes: float | None = None,
    held_out: int | None = None,
    skip_unreadable: bool = False,
    ranks: Ranks | None = None,
    progress: Progress | None = None,
) -> TrainResult:
    """Train the LoRA that `run` describes and write it to `output_folder`.

    All paths are absolute. `model_folder` is a diffusers folder with transformer/, or the transformer's own folder,
    or a single file, whose config.json is then that of `extras_folder`, which comes first for the other parts, too.
    `dataset_folders` maps each Dataset.key to its folder. An output folder with the state of this run is gone on
    with. With `max_minutes` it ends as if stopped before the process is that old; `held_out` pictures are evaluated
    instead of trained on (None: as many as when the run began, else none); with `skip_unreadable` pictures that
    cannot be read are left out and named, instead of ending the start. `ranks`: this is one of several processes,
    which share every step; process 0 saves and speaks.
    Raises TrainError for what the user can mend, KeyboardInterrupt for Ctrl-C or SIGTERM before the first step.
    """
    together = ranks or Ranks()
    shown = progress or (default_progress() if together.first else Silent())
    try:
        reasons = refuse(run)
        if reasons:
            raise TrainError("This runner cannot train the config. " + " ".join(reasons))
        if together.size > 1 and run.written("train/max_loss") is not None:
            raise TrainError(
                "The setting max_loss caps the loss of a whole step, which several processes share. Remove it."
            )
        if no_tracker := refused(run):
            raise TrainError(no_tracker)
        with interruptible(max_minutes) as stop, alone(Path(output_folder), run.name, held=together.first):
            run_training = _loop()
            return run_training(
                run,
                model_folder=model_folder,
                extras_folder=extras_folder,
                adapter_file=adapter_file,
                dataset_folders=dataset_folders,
                output_folder=output_folder,
                device=device,
                held_out=held_out,
                skip_unreadable=skip_unreadable,
                ranks=together,
                progress=shown,
                stop=stop,
            )
    finally:
        shown.close()


def _loop() -> Callable[..., TrainResult]:
    """`loop.run_training`, and whatever is slow to import with it. Raises TrainError where that fails."""
    # Looking through all that the imports make for garbage was a fifth of their time, and each later look took 0.3 s.
    first, collects = "diffusers.models.transformers" not in sys.modules, gc.isenabled()
    gc.disable()
    try:
        import diffusers.models.transformers  # noqa: F401

        from .loop import run_training
    except ImportError as error:
        raise TrainError(
            f"Training needs packages that are not here ({error}). Install them: pip install 'zdoctor[train]'"
        ) from error
    except RuntimeError as error:  # diffusers' own for whatever went wrong in a package that it imports
        raise TrainError(
            f"The import of diffusers fails: {_first(error)} A package in this environment does not fit the others, "
            "often torchvision, xformers or torchao made for another PyTorch. Install the one for this PyTorch, or "
            "remove it: the runner needs none of these three."
        ) from error
    finally:
        if collects:
            gc.enable()
    if first:
        gc.freeze()
    return run_training


def _first(error: BaseException) -> str:
    """What began a chain of errors, as a sentence."""
    while (earlier := error.__cause__ or error.__context__) is not None:
        error = earlier
    text = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return text if text.endswith(".") else f"{text}."
