"""What the runner cannot do, said before anything is loaded. Imports no torch and reads none of the run's files."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Iterator
from typing import Any

from ...families import family_of, trained
from ...families.network import lokr_rank
from ...model.recipe import Dataset
from ...model.run import Run
from .limits import limits
from .names import (
    CLIPS,
    COUNTS,
    DTYPES,
    FAVOURS,
    KINDS,
    LOSSES,
    NETWORKS,
    OPTIMIZERS,
    PACKAGES,
    SCHEDULERS,
    SCHEMES,
    WAVES,
)

# The key or field that is at fault, and a sentence about it without its full stop.
Reason = tuple[str, str]


def refuse(run: Run) -> list[str]:
    """Why this runner cannot train `run`, one sentence each; empty when it can."""
    reasons = (*(reason for part in PARTS for reason in part(run)), *run.refused)
    return list(dict.fromkeys(f"{what}{_line(run, name)}." for name, what in reasons))


def _line(run: Run, name: str) -> str:
    where = run.where(name)
    return "" if where.line is None else f" ({where.path}:{where.line})"


def _model(run: Run) -> Iterator[Reason]:
    if run.kind != "lora":
        yield "kind", f"This runner trains LoRAs, but the config asks for {_kind(run)}"
    if run.recipe.architecture not in trained():
        known = ", ".join(trained())
        yield (
            "architecture",
            f"The architecture {run.recipe.architecture or 'unknown'} is not supported; these are: {known}",
        )


def _network(run: Run) -> Iterator[Reason]:
    recipe = run.recipe
    if recipe.network.type not in NETWORKS:
        yield (
            "network_type",
            f"The network type {recipe.network.type} is not supported; use {', '.join(NETWORKS)}",
        )
    if recipe.network.rank < 1 and (recipe.network.type != "lokr" or lokr_rank(recipe.network) is not None):
        yield "rank", f"A LoRA of rank {recipe.network.rank} has nothing to train"
    dropout = recipe.network.dropout
    if not 0 <= dropout < 1:
        yield "network.dropout", f"The dropout {dropout:g} is not a number from 0 to below 1"
    elif dropout and recipe.network.type == "lokr":
        yield "network.dropout", "Dropout of a LoKr is not supported"


def _updates(run: Run) -> Iterator[Reason]:
    """How many updates there are, from how many pictures, and how large."""
    recipe = run.recipe
    if recipe.steps < 1 and not recipe.epochs:
        yield "steps", f"{recipe.steps} steps train nothing"
    if recipe.batch_size < 1 or recipe.gradient_accumulation < 1:
        yield "batch_size", "The batch size and gradient accumulation must be at least 1"
    if recipe.clip_method not in (None, *CLIPS):
        name = _named(run, "clip_method")
        yield "clip_method", f"{name} {recipe.clip_method} is not supported; use {' or '.join(CLIPS)}"
    if not isinstance(recipe.learning_rate, (int, float)) or not 0 < recipe.learning_rate < math.inf:
        yield "learning_rate", f"The learning rate {recipe.learning_rate!r} is not a number above 0"


def _storage(run: Run) -> Iterator[Reason]:
    """As what numbers are computed, saved and kept."""
    recipe = run.recipe
    if recipe.precision.dtype not in DTYPES:
        yield "dtype", f"The dtype {recipe.precision.dtype} is not supported; use bf16, fp16 or fp32"
    if recipe.checkpoints.dtype not in DTYPES:
        yield (
            "save_dtype",
            f"The save dtype {recipe.checkpoints.dtype} is not supported; use bf16, float16 or float32",
        )
    if recipe.precision.quantization not in KINDS:
        yield (
            "quantization",
            f"The quantization {recipe.precision.quantization} is not supported; "
            "use qfloat8, float8, qint8, int8, uint4 or none",
        )


def _levers(run: Run) -> Iterator[Reason]:
    """What saves memory at the price of time."""
    offload = run.recipe.offload
    if offload.share is None:
        return
    share = _named(run, "offload.share")
    if not offload.gradient_checkpointing:
        yield "offload.share", f"{share} needs {_named(run, 'gradient_checkpointing')}: true"
    if offload.interval > 1:
        name = _named(run, "offload.interval")
        yield "offload.interval", f"{name} {offload.interval} does not go with {share}"
    if offload.compile:
        yield "offload.compile", f"{_named(run, 'offload.compile')} does not go with {share}"


def _optimizer(run: Run) -> Iterator[Reason]:
    recipe = run.recipe
    if recipe.optimizer.name not in OPTIMIZERS:
        yield "optimizer", f"The optimizer {recipe.optimizer.name} is not supported; use {', '.join(OPTIMIZERS)}"
        return
    for key, value in recipe.optimizer.settings.items():
        what = f"The setting {key} of the optimizer {recipe.optimizer.name}"
        several = key == "betas" or (key == "eps" and recipe.optimizer.name == "adafactor")
        parts: list[Any] = [*value] if isinstance(value, list | tuple) and several else [value]
        if key not in OPTIMIZERS[recipe.optimizer.name]:
            yield "optimizer_settings", f"{what} is not supported"
        elif not all(isinstance(part, int | float) for part in parts):
            yield "optimizer_settings", f"{what} is {value!r}, which is no number"
        elif key == "betas" and not (len(parts) == 2 and all(0 <= part < 1 for part in parts)):
            yield "optimizer_settings", f"{what} is {value!r}, but must be two numbers from 0 to below 1"
        elif key != "decay_rate" and min(parts) < 0:
            yield "optimizer_settings", f"{what} is {value!r}, which is below 0"
        elif key in ("relative_step", "warmup_init") and value:
            yield "optimizer_settings", f"{what} sets a rate of its own, which cannot be combined with lr"
    if recipe.optimizer.name in PACKAGES:
        module, package = PACKAGES[recipe.optimizer.name]
        if importlib.util.find_spec(module) is None:
            yield (
                "optimizer",
                f"The optimizer {recipe.optimizer.name} needs a package that is not here; "
                f"type: pip install {package}",
            )


def _schedule(run: Run) -> Iterator[Reason]:
    recipe = run.recipe
    name, known = recipe.lr_scheduler.name, {**SCHEDULERS, **WAVES}
    if name not in known:
        yield "scheduler", f"The learning-rate schedule {name} is not supported; use {', '.join(SCHEDULERS)}"
        return
    for key, value in recipe.lr_scheduler.settings.items():
        what = f"The setting {key} of the schedule {name}"
        if key not in known[name]:
            yield "scheduler_settings", f"{what} is not supported"
        elif isinstance(value, bool) or not isinstance(value, int | float):
            yield "scheduler_settings", f"{what} is {value!r}, which is no number"
        elif key in COUNTS and (value < 1 or value != int(value)):
            yield "scheduler_settings", f"{what} is {value}, but must be a whole number above 0"
    if name == "step" and "step_size" not in recipe.lr_scheduler.settings:
        yield "scheduler", "The learning-rate schedule step needs lr_scheduler_params: {step_size: …}"


def _loss(run: Run) -> Iterator[Reason]:
    recipe = run.recipe
    if recipe.timestep_sampling.type not in SCHEMES and recipe.timestep_sampling.density is None:
        yield (
            "timestep_type",
            f"The timestep type {recipe.timestep_sampling.type} is not supported; use {', '.join(SCHEMES)}",
        )
    if recipe.timestep_sampling.content_or_style not in FAVOURS:
        yield (
            "content_or_style",
            f"content_or_style {recipe.timestep_sampling.content_or_style} is not one of {', '.join(FAVOURS)}",
        )
    if recipe.loss.type not in LOSSES:
        yield "loss_type", f"The loss {recipe.loss.type} is not supported; use {', '.join(LOSSES)}"


def _datasets(run: Run) -> Iterator[Reason]:
    recipe = run.recipe
    if not run.output_folder:
        yield "output_folder", "The config names no output folder"
    if not recipe.datasets:
        yield "datasets", "The config names no dataset"
    elif all(dataset.is_regularisation for dataset in recipe.datasets):
        yield "datasets", "Every dataset is one of regularisation images, so there is nothing to learn"
    for dataset in recipe.datasets:
        yield from _dataset(run, dataset)


def _dataset(run: Run, dataset: Dataset) -> Iterator[Reason]:
    recipe = run.recipe
    edits = family_of(recipe.architecture).edits
    if dataset.controls:
        yield dataset.key, "Making control images (controls) is not supported"
    if edits and len(dataset.control_folders) > 1:
        yield dataset.key, "Several control images for one picture are not supported"


PARTS: tuple[Callable[[Run], Iterator[Reason]], ...] = (
    *(_model, _network, _updates, _storage, _levers, _optimizer, _schedule, _loss),
    *(_datasets, limits),
)


def _named(run: Run, field: str) -> str:
    """The word of the config for a field."""
    return run.keys.get(field, field).rpartition("/")[2].rpartition(".")[2]


def _kind(run: Run) -> str:
    return "a full fine-tune" if run.kind == "finetune" else f"a job of type {run.process_type or 'unknown'}"
