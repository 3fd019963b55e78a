"""What the runner cannot do, said before anything is loaded. Imports no torch and reads none of the run's files."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Iterator
from typing import Any

from ...configs.defaults import short
from ...families import family_of, trained
from ...families.network import lokr_factor, lokr_rank
from ...model.recipe import Dataset
from ...model.run import Run
from .limits import limits
from .names import (
    BLANK,
    CLASS,
    CLIPS,
    COMPILE,
    COUNTS,
    DRAWN,
    DTYPES,
    FAVOURS,
    INTERVAL,
    KINDS,
    LOSSES,
    NETWORKS,
    OPTIMIZERS,
    PACKAGES,
    SCHEDULERS,
    SCHEMES,
    WAVES,
    wants_compile,
)
from .neutral import (
    CONTROL_PATHS,
    CONTROL_SETTINGS,
    DATASET_SWITCHES,
    NEUTRAL,
    OF_DATASETS,
    SWITCHES,
    harmless,
)

WEIGHTS = ("cfg_scale", "reg_weight", *(f"{name}_multiplier" for name in (CLASS, BLANK, "inverted_mask_prior")))
# The key or field that is at fault, and a sentence about it without its full stop.
Reason = tuple[str, str]


def refuse(run: Run) -> list[str]:
    """Why this runner cannot train `run`, one sentence each; empty when it can."""
    return list(dict.fromkeys(f"{what}{_line(run, name)}." for part in PARTS for name, what in part(run)))


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
    factor = run.setting("network/lokr_factor")
    if recipe.network.type == "lokr" and factor not in (None, lokr_factor(run)):
        yield "network/lokr_factor", f"lokr_factor {factor!r} is neither -1 nor a whole number above 0"
    if recipe.network.rank < 1 and (recipe.network.type != "lokr" or lokr_rank(run) is not None):
        yield "rank", f"A LoRA of rank {recipe.network.rank} has nothing to train"
    if run.narrowed:
        yield "network/network_kwargs", "network_kwargs is not supported"
    dropout = run.setting("network/dropout")
    if dropout:
        if not isinstance(dropout, (int, float)) or not 0 <= dropout < 1:
            yield "network/dropout", f"The dropout {dropout!r} is not a number from 0 to below 1"
        elif recipe.network.type == "lokr":
            yield "network/dropout", "Dropout of a LoKr is not supported"


def _updates(run: Run) -> Iterator[Reason]:
    """How many updates there are, from how many pictures, and how large."""
    recipe = run.recipe
    if recipe.steps < 1 and not run.setting("train/epochs"):
        yield "steps", f"{recipe.steps} steps train nothing"
    apart = run.setting("train/gradient_accumulation_steps")
    if isinstance(apart, int) and apart not in (0, 1):
        yield (
            "train/gradient_accumulation_steps",
            f"gradient_accumulation_steps {apart} is not supported (ai-toolkit counts each batch as a step and "
            "forgets the gradients of all but the last); write gradient_accumulation, which counts updates",
        )
    elif recipe.batch_size < 1 or recipe.gradient_accumulation < 1:
        yield "batch_size", "The batch size and gradient accumulation must be at least 1"
    clips = run.setting("train/grad_clip_method", CLIPS[0])
    if clips not in CLIPS:
        yield "train/grad_clip_method", f"grad_clip_method {clips} is not supported; use {' or '.join(CLIPS)}"
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
    elif recipe.precision.quantization is not None and "|" in str(run.setting("model/qtype", "")):
        yield (
            "quantization",
            "An accuracy recovery adapter is not supported; write qtype without | and what follows it",
        )


def _levers(run: Run) -> Iterator[Reason]:
    """What saves memory at the price of time."""
    key = "model/layer_offloading_transformer_percent"
    offloaded = run.setting("model/layer_offloading")
    wanted = run.setting(key, 1)
    if offloaded and not (type(wanted) in (int, float) and 0 <= wanted <= 1):
        yield key, f"layer_offloading_transformer_percent {wanted!r} is not a number from 0 to 1"
    if offloaded and not run.recipe.offload.gradient_checkpointing:
        yield "model/layer_offloading", "layer_offloading needs gradient_checkpointing: true"
    interval = run.setting(f"train/{INTERVAL}", 1)
    if type(interval) is not int or interval < 1:
        yield f"train/{INTERVAL}", f"{INTERVAL} {interval!r} is not a whole number above 0"
    elif interval > 1 and offloaded:
        yield f"train/{INTERVAL}", f"{INTERVAL} {interval} does not go with layer_offloading"
    for name in COMPILE:
        if run.setting(name) and offloaded:
            yield name, f"{_last(name)} does not go with layer_offloading"
    mode = run.setting("model/compile_mode", "default")
    if wants_compile(run) and mode != "default":
        yield "model/compile_mode", f"compile_mode {mode} is not supported; leave it at default"


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
    if recipe.timestep_sampling.type not in SCHEMES and not (recipe.timestep_sampling.type == DRAWN and _drawn(run)):
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


def _drawn(run: Run) -> bool:
    return isinstance(run.setting(f"train/{DRAWN}"), dict)


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
    for key, plain in CONTROL_SETTINGS.items() if edits else ():
        value = run.setting(f"{dataset.key}/{key}")
        if not harmless(value, plain):
            yield f"{dataset.key}/{key}", f"{key} {short(value)} is not supported; leave it out"
    if run.setting(f"{dataset.key}/batch_size", recipe.batch_size) != recipe.batch_size:
        yield f"{dataset.key}/batch_size", "A batch size of one dataset is not supported; set train.batch_size"
    for name in (
        f"{dataset.key}/loss_multiplier",
        f"{dataset.key}/mask_min_value",
        *(f"train/{name}" for name in WEIGHTS),
    ):
        weight = run.setting(name, 1)
        if type(weight) not in (int, float) or not math.isfinite(weight):
            yield name, f"{_last(name)} {weight!r} is no number"
    for key, what in DATASET_SWITCHES.items():
        if run.setting(f"{dataset.key}/{key}") and not (edits and key in CONTROL_PATHS):
            yield f"{dataset.key}/{key}", f"{_capital(what)} are not supported"
    frames = run.setting(f"{dataset.key}/num_frames")
    if isinstance(frames, int) and frames > 1:
        yield f"{dataset.key}/num_frames", "Video datasets are not supported"


def _lacking(run: Run) -> Iterator[Reason]:
    """What the runner does not have, by the tables."""
    recipe = run.recipe
    switches = {**SWITCHES, **family_of(recipe.architecture).ai_toolkit.switches}
    for key, what in switches.items():
        if run.setting(key):
            yield key, f"{_capital(what)} is not supported"
    unloaded = "train/unload_text_encoder"
    if run.setting(unloaded) and not recipe.cache_text_embeddings:  # else each caption counts, from the cache
        yield unloaded, "unload_text_encoder without cache_text_embeddings, which ignores captions, is not supported"
    of_datasets = {f"{d.key}/{name}": plain for d in recipe.datasets for name, plain in OF_DATASETS.items()}
    for key, plain in {**NEUTRAL, **of_datasets}.items():
        value = run.setting(key)
        if not harmless(value, plain):
            leave = f"leave it at {short(plain)}" if plain else "leave it out"
            yield key, f"{_last(key)} {short(value)} is not supported; {leave}"


def _preservation(run: Run) -> Iterator[Reason]:
    preserved = [f"train/{name}" for name in (CLASS, BLANK) if run.setting(f"train/{name}")]
    if len(preserved) == 2:
        yield preserved[1], f"{BLANK} beside {CLASS} is not supported; ai-toolkit mixes up their prompts"
    words = [
        run.recipe.trigger_word,
        *(run.setting(f"{dataset.key}/trigger_word") for dataset in run.recipe.datasets),
    ]
    if f"train/{CLASS}" in preserved and not any(words):
        yield preserved[0], f"{CLASS} needs a trigger_word"


def _bounds(run: Run) -> Iterator[Reason]:
    """Numbers within which noise, guidance and loss are to lie."""
    ends = [f"train/{name}_denoising_steps" for name in ("min", "max")]
    for key, value in ((key, run.setting(key, 0)) for key in ends):
        if type(value) is not int or not 0 <= value <= 1000:
            yield key, f"{_last(key)} {value!r} is not a whole number from 0 to 1000"
    low, high = run.setting(ends[0]), run.setting(ends[1], 999)
    if type(low) is int and type(high) is int and low > high:
        yield ends[0], f"min_denoising_steps {low} is above max_denoising_steps {high}"
    for key in ("train/guidance_loss_target", "train/differential_guidance_scale"):
        value = run.setting(key, 1)
        parts = value if isinstance(value, list) and key.endswith("target") else [value]
        if len(parts) not in (1, 2) or any(type(part) not in (int, float) for part in parts):
            yield key, f"{_last(key)} {value!r} is neither a number nor a pair of them"
    most = run.setting("train/max_loss")
    if most is not None and not (type(most) in (int, float) and most > 0):
        yield "train/max_loss", f"max_loss {most!r} is not a number above 0"


PARTS: tuple[Callable[[Run], Iterator[Reason]], ...] = (
    *(_model, _network, _updates, _storage, _levers, _optimizer, _schedule, _loss),
    *(_datasets, _lacking, _preservation, _bounds, limits),
)


def _last(key: str) -> str:
    return key.rsplit("/", 1)[-1]


def _capital(what: str) -> str:
    """The start of a sentence; a key stays as it is written in the config."""
    return what if "_" in what.split()[0] else what[0].upper() + what[1:]


def _kind(run: Run) -> str:
    return "a full fine-tune" if run.kind == "finetune" else f"a job of type {run.process_type or 'unknown'}"
