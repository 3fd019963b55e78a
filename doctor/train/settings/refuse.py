"""What the runner cannot do, said before anything is loaded. Imports no torch and reads none of the run's files."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator, Mapping
from typing import Any

from ...families import family_of, trained
from ...families.network import TITLES, lokr_rank
from ...model.run import Run
from ...schema.takers import takers
from .names import (
    CLASSES,
    CLIPS,
    COUNTS,
    DTYPES,
    FAVOURS,
    KINDS,
    LOSSES,
    ONE_RATE,
    OPTIMIZERS,
    SCHEDULERS,
    SCHEMES,
    WAVES,
    class_path,
)

# The sides of the smallest picture that the models take, in pixels: one cell.
CELL = 16
# Bytes of a run's name: file systems take 255, and the longest that is added is for a save while it is written.
LONGEST = 200
# The key or field in question, whether it is at fault, and a sentence about it without its full stop.
Rows = Iterator[tuple[str, object, str]]
# A word in what trainers call a field, where their sources name its values.
WORDS: Mapping[str, str] = {
    "network_type": "network",
    "optimizer": "optimizer",
    "scheduler": "lr_scheduler",
    "timestep_type": "timestep",
    "loss_type": "loss_type",
    "quantization": "precision",
}
_NOTHING_TO_EDIT = "This model needs an image to edit for each picture (control_path) and each sample (ctrl_img)"


def refuse(run: Run) -> list[str]:
    """Why this runner cannot train `run`, one sentence each; empty when it can."""
    rows = (row for part in PARTS for row in part(run))
    reasons = (*((name, what) for name, is_wrong, what in rows if is_wrong), *run.refused)
    return list(dict.fromkeys(f"{what}{_line(run, name)}." for name, what in reasons))


def is_another_job(run: Run) -> bool:
    """Whether no LoRA is trained, or one of another model: whatever else is refused or broken, nothing helps."""
    return any(is_wrong for _, is_wrong, _ in _job(run))


def _line(run: Run, name: str) -> str:
    where = run.where(name)
    return "" if where.line is None else f" ({where.path}:{where.line})"


def _job(run: Run) -> Rows:
    architecture = run.recipe.architecture
    kind = "a full fine-tune" if run.kind == "finetune" else f"a job of type {run.process_type or 'unknown'}"
    yield "kind", run.kind != "lora", f"This runner trains LoRAs, but the config asks for {kind}"
    told = f"The architecture {architecture or 'unknown'} is not supported; these are: {', '.join(trained())}"
    yield "architecture", family_of(architecture).own is None, told


def _model(run: Run) -> Rows:
    network = run.recipe.network
    dropout = network.dropout
    of_rank = network.type != "lokr" or lokr_rank(network) is not None
    without = dropout > 0 and network.type not in ("lora", "dora")
    yield _one_of("network_type", "The network type", network.type, TITLES)
    yield "rank", network.rank < 1 and of_rank, f"A LoRA of rank {network.rank} has nothing to train"
    told = f"The dropout {dropout:g} is not a number from 0 to below 1"
    yield "network.dropout", not 0 <= dropout < 1, told
    yield "network.dropout", without, f"Dropout of a {TITLES.get(network.type, '')} is not supported"
    if family_of(run.recipe.architecture).convolves:
        told = f"A {TITLES.get(network.type, network.type)} of a UNet is not supported; use a plain LoRA"
        yield "network_type", network.type != "lora", told
        yield "network.full", network.full, "Layers of a UNet that are trained as a whole are not supported"


def _updates(run: Run) -> Rows:
    """How many updates there are, from how many pictures, and how large."""
    recipe = run.recipe
    batch, rate, clip = (recipe.batch_size, recipe.gradient_accumulation), recipe.learning_rate, recipe.clip_method
    yield "steps", recipe.steps < 1 and not recipe.epochs, f"{recipe.steps} steps train nothing"
    yield "batch_size", min(batch) < 1, "The batch size and gradient accumulation must be at least 1"
    if clip is not None:
        yield _one_of("clip_method", _named(run, "clip_method"), clip, CLIPS, " or ".join(CLIPS))
    is_rate = isinstance(rate, int | float) and 0 < rate < math.inf
    yield "learning_rate", not is_rate, f"The learning rate {rate!r} is not a number above 0"


def _storage(run: Run) -> Rows:
    """As what numbers are computed, saved and kept."""
    precision, save = run.recipe.precision, run.recipe.checkpoints.dtype
    kinds = "qfloat8, float8, qint8, int8, uint4 or none"
    yield _one_of("dtype", "The dtype", precision.dtype, DTYPES, "bf16, fp16 or fp32")
    yield _one_of("save_dtype", "The save dtype", save, DTYPES, "bf16, float16 or float32")
    yield _one_of("quantization", "The quantization", precision.quantization, KINDS, kinds)


def _levers(run: Run) -> Rows:
    """What saves memory at the price of time."""
    offload, share = run.recipe.offload, _named(run, "offload.share")
    if offload.share is not None:
        again, interval = _named(run, "gradient_checkpointing"), _named(run, "offload.interval")
        yield "offload.share", not offload.gradient_checkpointing, f"{share} needs {again}: true"
        yield "offload.interval", offload.interval > 1, f"{interval} {offload.interval} does not go with {share}"
        yield "offload.compile", offload.compile, f"{_named(run, 'offload.compile')} does not go with {share}"


def _optimizer(run: Run) -> Rows:
    name, settings = run.recipe.optimizer.name, run.recipe.optimizer.settings
    known = dict.fromkeys((*OPTIMIZERS, *CLASSES))
    if "." not in name:
        words = f"{', '.join(known)}, or the class of an installed package as module.Class"
        yield _one_of("optimizer", "The optimizer", name, known, words)
    network = run.recipe.network
    ratios = {network.lora_plus_ratio, *([network.text_plus_ratio] if network.text_rates else [])}
    alone = class_path(name) in map(class_path, ONE_RATE)
    yield "optimizer", alone and ratios != {1.0}, f"LoRA+ beside {name} is not supported"
    for key, value in settings.items() if name in OPTIMIZERS else ():
        what = f"The setting {key} of the optimizer {name}"
        several = key == "betas" or (key == "eps" and name == "adafactor")
        parts: list[Any] = [*value] if isinstance(value, list | tuple) and several else [value]
        wrong = "optimizer_settings", True
        if key not in OPTIMIZERS[name]:
            yield *wrong, f"{what} is not supported"
        elif not all(isinstance(part, int | float) for part in parts):
            yield *wrong, f"{what} is {value!r}, which is no number"
        elif key == "betas" and not (len(parts) == 2 and all(0 <= part < 1 for part in parts)):
            yield *wrong, f"{what} is {value!r}, but must be two numbers from 0 to below 1"
        elif key != "decay_rate" and min(parts) < 0:
            yield *wrong, f"{what} is {value!r}, which is below 0"
        elif key in ("relative_step", "warmup_init") and value:
            yield *wrong, f"{what} sets a rate of its own, which cannot be combined with lr"
    if module := class_path(name).partition(".")[0]:
        package = CLASSES.get(name, ("", ""))[1]
        do = f"type: pip install {package}" if package else f"install what brings the module {module}"
        told = f"The optimizer {name} needs a package that is not here; {do}"
        yield "optimizer", importlib.util.find_spec(module) is None, told


def _schedule(run: Run) -> Rows:
    name, settings = run.recipe.lr_scheduler.name, run.recipe.lr_scheduler.settings
    known = {**SCHEDULERS, **WAVES}
    yield _one_of("scheduler", "The learning-rate schedule", name, known, ", ".join(SCHEDULERS))
    for key, value in settings.items() if name in known else ():
        what, wrong = f"The setting {key} of the schedule {name}", ("scheduler_settings", True)
        if key not in known[name]:
            yield *wrong, f"{what} is not supported"
        elif isinstance(value, bool) or not isinstance(value, int | float):
            yield *wrong, f"{what} is {value!r}, which is no number"
        elif key in COUNTS and (value < 1 or value != int(value)):
            yield *wrong, f"{what} is {value}, but must be a whole number above 0"
    lacks = name == "step" and "step_size" not in settings
    yield "scheduler", lacks, "The learning-rate schedule step needs lr_scheduler_params: {step_size: …}"


def _loss(run: Run) -> Rows:
    sampling, favour = run.recipe.timestep_sampling, run.recipe.timestep_sampling.content_or_style
    if sampling.density is None:
        yield _one_of("timestep_type", "The timestep type", sampling.type, SCHEMES)
    yield "content_or_style", favour not in FAVOURS, f"content_or_style {favour} is not one of {', '.join(FAVOURS)}"
    yield _one_of("loss_type", "The loss", run.recipe.loss.type, LOSSES)
    diffuses, scheduler = family_of(run.recipe.architecture).diffuses, sampling.noise_scheduler
    told = f"{_named(run, 'noise_scheduler')} {scheduler} is not supported for this model; use ddpm"
    yield "noise_scheduler", diffuses and scheduler != "ddpm", told
    for field in ("min_snr_gamma", "snr_gamma") if not diffuses else ():
        told = f"{_named(run, f'loss.{field}')} is of models that predict noise, which this one does not; take it out"
        yield f"loss.{field}", getattr(run.recipe.loss, field), told


def _datasets(run: Run) -> Rows:
    datasets = run.recipe.datasets
    edits = family_of(run.recipe.architecture).edits
    seeing = edits is not None and edits.seen > 0
    only_regular = bool(datasets) and all(dataset.is_regularisation for dataset in datasets)
    yield "output_folder", not run.output_folder, "The config names no output folder"
    yield "datasets", not datasets, "The config names no dataset"
    told = "Every dataset is one of regularisation images, so there is nothing to learn"
    yield "datasets", only_regular, told
    for dataset in datasets:
        several = edits and len(dataset.control_folders) > edits.most
        yield dataset.key, dataset.controls, "Making control images (controls) is not supported"
        yield dataset.key, several, "Several control images for one picture are not supported"
        yield dataset.key, seeing and not dataset.control_folders, _NOTHING_TO_EDIT


def _limits(run: Run) -> Rows:
    """Numbers with which a run would learn nothing or paint nothing, and names that no file can have."""
    recipe, ema, size = run.recipe, run.recipe.ema, len(run.name.encode())
    told = f"The name {run.name} has a slash, and files are named after it; write a name without"
    yield "name", "/" in run.name or "\\" in run.name, told
    yield "name", size > LONGEST, f"The name has {size} bytes, and files named after it would be too long"
    if ema.use:
        yield "ema_decay", not 0 <= ema.decay < 1, f"The ema_decay {ema.decay:g} is not a number from 0 to below 1"
    for dataset in recipe.datasets:
        dropout, least = dataset.caption_dropout, next((r for r in dataset.resolutions if r < CELL), None)
        told = f"The caption dropout {dropout:g} is not a number from 0 to 1"
        yield f"{dataset.key}/caption_dropout", not 0 <= dropout <= 1, told
        told = f"The resolution {least} is below {CELL} pixels, the smallest picture"
        yield f"{dataset.key}/resolutions", least is not None, told
    edits = family_of(recipe.architecture).edits
    for sample in recipe.validation.painted:
        yield "samples", edits is not None and edits.seen > 0 and not sample.controls, _NOTHING_TO_EDIT
        told = f"A sample of {sample.width} x {sample.height} pixels is smaller than {CELL} x {CELL}"
        yield "samples", min(sample.width, sample.height) < CELL, told


PARTS = (_job, _model, _updates, _storage, _levers, _optimizer, _schedule, _loss, _datasets, _limits)


def _one_of(name: str, what: str, value: str | None, known: Any, words: str = "") -> tuple[str, bool, str]:
    told = f"{what} {value} is not supported; use {words or ', '.join(known)}"
    if value in known:
        return name, False, told
    had = takers(WORDS[name], value or "") if name in WORDS else []
    return name, True, f"{told}, or train with {' or '.join(had)}" if had else told


def _named(run: Run, field: str) -> str:
    """The word of the config for a field."""
    return run.keys.get(field, field).rpartition("/")[2].rpartition(".")[2]
