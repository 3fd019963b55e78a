"""The quantized LoRA runner trains what a Run describes.

Only the modules of this folder import torch and diffusers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from ..model.run import Run
from .distributed.ranks import Ranks
from .encode.text_encoder_process import TextEncoderProcess
from .job import Job, TrainResult
from .output.trackers import tracker_refusal
from .runtime.heavy_imports import explained_imports, import_lean
from .runtime.progress import Progress, Silent, default_progress
from .runtime.run_lock import lock_run
from .runtime.stop_signals import interruptible
from .runtime.train_error import TrainError
from .settings.names import CACHE
from .settings.refuse import refuse

__all__ = ["Progress", "TrainError", "TrainResult", "default_progress", "refuse", "train"]


def train(
    run: Run,
    *,
    model_folder: str,
    extras_folder: str | None = None,
    components: Mapping[str, str] | None = None,
    adapter_file: str | None = None,
    dataset_folders: Mapping[str, str],
    output_folder: str,
    device: str | None = None,
    max_minutes: float | None = None,
    held_out: int | None = None,
    skip_unreadable: bool = False,
    ranks: Ranks | None = None,
    text_process: TextEncoderProcess | None = None,
    progress: Progress | None = None,
) -> TrainResult:
    """Trains the LoRA that `run` describes and writes it to `output_folder`.

    All paths are absolute. `model_folder` is a diffusers folder with transformer/, or the transformer's own folder,
    or a single file, whose config.json is then that of `extras_folder`, where other components are looked for first.
    `components` maps names of components to a folder or a file each; beside them a transformer that is a single file
    needs no config.json. `dataset_folders` maps each Dataset.key to its folder. An output folder with the state of
    this run is gone on with. With `max_minutes` it ends as if stopped before the process is that old; `held_out`
    images are evaluated instead of trained on (None: as many as when the run began, else none); with
    `skip_unreadable` images that cannot be read are left out and named, instead of ending the start. `ranks`: this is
    one of several processes, which share every step. `text_process` encodes the prompts; with one, this process is
    the runner's own, where diffusers' pipelines do not work. Raises TrainError, and KeyboardInterrupt for Ctrl-C or
    SIGTERM before the first step.
    """
    together = ranks or Ranks()
    shown = progress or (default_progress() if together.is_first else Silent())
    try:
        _check_settings(run, together)
        with interruptible(max_minutes) as stop, lock_run(Path(output_folder), run.name, held=together.is_first):
            if text_process and together.local == 0 and not any(Path(output_folder, CACHE).glob("text-*")):
                text_process.start()
            run_training = _loop(lean=text_process is not None and not run.recipe.offload.compile)
            stop.heed()
            return run_training(
                Job(
                    run=run,
                    model=Path(model_folder),
                    extras=None if extras_folder is None else Path(extras_folder),
                    components={name: Path(place) for name, place in (components or {}).items()},
                    adapter=None if adapter_file is None else Path(adapter_file),
                    datasets=dataset_folders,
                    output=Path(output_folder),
                    device=device,
                    held_out=held_out,
                    skip_unreadable=skip_unreadable,
                    ranks=together,
                    text_process=text_process,
                    progress=shown,
                    stop=stop,
                )
            )
    finally:
        shown.close()


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
