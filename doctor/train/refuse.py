"""What the runner cannot do, said before anything is loaded. Imports no torch and reads none of the run's files."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

from ..architectures.network import lokr_factor, lokr_rank
from ..model.families import EDITING, TRAINED
from ..model.run import Run
from .names import (
    BLANK,
    CLASS,
    COMPILE,
    COUNTS,
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
)
from .neutral import NEUTRAL, OF_DATASETS, harmless

WEIGHTS = ("cfg_scale", "reg_weight", f"{CLASS}_multiplier", f"{BLANK}_multiplier")
# Settings that change what is learnt and that the runner does not have; any value but null, false, 0 or empty is one.
SWITCHES: dict[str, str] = {
    "train/train_text_encoder": "training the text encoder",
    "train/train_turbo": "turbo training",
    "train/unload_text_encoder": "training with the text encoder unloaded (captions ignored)",
    "train/noise_offset": "noise offset",
    "train/random_noise_shift": "random noise shift",
    "train/random_noise_multiplier": "random noise multiplier",
    "train/prompt_dropout_prob": "prompt dropout (write caption_dropout_rate on the dataset)",
    "train/merge_network_on_save": "merging the network on save",
    "train/min_snr_gamma": "min-SNR weighting",
    "train/snr_gamma": "SNR weighting",
    "train/start_step": "start_step",
    "train/ema_config/use_feedback": "EMA feedback",
    "network/lora_plus_ratio": "LoRA+",
    "network/network_kwargs": "network_kwargs",
    "network/old_lokr_format": "the old LoKr format",
    "network/layer_offloading": "layer offloading of the network",
    "model/accuracy_recovery_adapter": "an accuracy recovery adapter",
    "model/lora_path": "a LoRA merged into the base model",
    "model/inference_lora_path": "an inference LoRA",
    "model/split_model_over_gpus": "splitting the model over GPUs",
    "adapter": "an adapter section",
    "embedding": "an embedding section",
    "decorator": "a decorator section",
    "slider": "a slider section",
    "save/push_to_hub": "pushing to the hub",
}
# What counts for Flux only.
FLUX = ("flux", "flux_kontext")
FLUX_SWITCHES: dict[str, str] = {
    "model/attn_masking": "masking the padding of prompts",
    "model/use_flux_cfg": "a guidance of two passes",
    "model/vae_path": "a VAE from another place",
    "train/bypass_guidance_embedding": "bypassing the guidance embedding",
    "train/do_guidance_loss": "guidance loss for Flux",
}
# How control images are read; of an architecture that edits them, each must be this or not written.
CONTROL_SETTINGS: dict[str, Any] = {"full_size_control_images": True, "control_transparent_color": [0, 0, 0]}
CONTROL_PATHS = ("control_path", "control_path_1", "control_path_2", "control_path_3")
# Dataset settings that would change what is learnt.
DATASET_SWITCHES: dict[str, str] = {
    **dict.fromkeys(CONTROL_PATHS, "control images"),
    "controls": "control images",
    "inpaint_path": "inpainting images",
    "unconditional_path": "unconditional images",
    "clip_image_path": "CLIP images",
    "random_scale": "random scaling",
    "augments": "augmentations",
    "augmentations": "augmentations",
    "shuffle_tokens": "shuffled caption tokens",
    "token_dropout_rate": "token dropout",
    "random_triggers": "random triggers",
    "replacements": "caption replacements",
}


def refuse(run: Run) -> list[str]:
    """Why this runner cannot train `run`, one sentence each; empty when it can."""
    reasons: list[str] = []

    def no(name: str, what: str) -> None:
        where = run.where(name)
        line = "" if where.line is None else f" ({where.path}:{where.line})"
        reasons.append(f"{what}{line}.")

    if run.kind != "lora":
        no("kind", f"This runner trains LoRAs, but the config asks for {_kind(run)}")
    if run.architecture not in TRAINED:
        no(
            "architecture",
            f"The architecture {run.architecture or 'unknown'} is not supported; these are: {', '.join(TRAINED)}",
        )
    if run.network_type not in NETWORKS:
        no("network_type", f"The network type {run.network_type} is not supported; use {', '.join(NETWORKS)}")
    factor = run.settings.get("network/lokr_factor")
    if run.network_type == "lokr" and factor is not None and factor.value not in (None, lokr_factor(run)):
        no("network/lokr_factor", f"lokr_factor {factor.value!r} is neither -1 nor a whole number above 0")
    if run.rank < 1 and (run.network_type != "lokr" or lokr_rank(run) is not None):
        no("rank", f"A LoRA of rank {run.rank} has nothing to train")
    left_out = run.settings.get("network/dropout")
    if left_out is not None and left_out.value:
        if not isinstance(left_out.value, (int, float)) or not 0 <= left_out.value < 1:
            no("network/dropout", f"The dropout {left_out.value!r} is not a number from 0 to below 1")
        elif run.network_type == "lokr":
            no("network/dropout", "Dropout of a LoKr is not supported")
    if run.steps < 1:
        no("steps", f"{run.steps} steps train nothing")
    apart = run.settings.get("train/gradient_accumulation_steps")
    if apart is not None and isinstance(apart.value, int) and apart.value not in (0, 1):
        no(
            "train/gradient_accumulation_steps",
            f"gradient_accumulation_steps {apart.value} is not supported (ai-toolkit counts each batch as a step and "
            "forgets the gradients of all but the last); write gradient_accumulation, which counts updates",
        )
    elif run.batch_size < 1 or run.gradient_accumulation < 1:
        no("batch_size", "The batch size and gradient accumulation must be at least 1")
    if not isinstance(run.learning_rate, (int, float)) or run.learning_rate <= 0:
        no("learning_rate", f"The learning rate {run.learning_rate!r} is not a number above 0")
    if run.dtype not in DTYPES:
        no("dtype", f"The dtype {run.dtype} is not supported; use bf16, fp16 or fp32")
    for name, what in _levers(run):
        no(name, what)
    if run.save_dtype not in DTYPES:
        no("save_dtype", f"The save dtype {run.save_dtype} is not supported; use bf16, float16 or float32")
    if run.quantization not in KINDS:
        no(
            "quantization",
            f"The quantization {run.quantization} is not supported; use qfloat8, float8, qint8, int8, uint4 or none",
        )
    elif run.quantization is not None and "|" in str(getattr(run.settings.get("model/qtype"), "value", "")):
        no("quantization", "An accuracy recovery adapter is not supported; write qtype without | and what follows it")
    for name, what in (*_optimizer(run), *_schedule(run)):
        no(name, what)
    if run.timestep_type not in SCHEMES:
        no("timestep_type", f"The timestep type {run.timestep_type} is not supported; use {', '.join(SCHEMES)}")
    if run.content_or_style not in FAVOURS:
        no("content_or_style", f"content_or_style {run.content_or_style} is not one of {', '.join(FAVOURS)}")
    if run.loss_type not in LOSSES:
        no("loss_type", f"The loss {run.loss_type} is not supported; use {', '.join(LOSSES)}")
    if not run.output_folder:
        no("output_folder", "The config names no output folder")
    if not run.datasets:
        no("datasets", "The config names no dataset")
    elif all(dataset.is_regularisation for dataset in run.datasets):
        no("datasets", "Every dataset is one of regularisation images, so there is nothing to learn")
    for dataset in run.datasets:
        edits = run.architecture in EDITING
        if dataset.controls:
            no(dataset.key, "Making control images (controls) is not supported")
        if edits and len(dataset.control_folders) > 1:
            no(dataset.key, "Several control images for one picture are not supported")
        for key, plain in CONTROL_SETTINGS.items() if edits else ():
            value = run.settings.get(f"{dataset.key}/{key}")
            if value is not None and not harmless(value.value, plain):
                no(f"{dataset.key}/{key}", f"{key} {_short(value.value)} is not supported; leave it out")
        size = run.settings.get(f"{dataset.key}/batch_size")
        if size is not None and size.value not in (None, run.batch_size):
            no(f"{dataset.key}/batch_size", "A batch size of one dataset is not supported; set train.batch_size")
        for name in (
            f"{dataset.key}/loss_multiplier",
            f"{dataset.key}/mask_min_value",
            *(f"train/{name}" for name in WEIGHTS),
        ):
            weight = run.settings.get(name)
            if weight is not None and type(weight.value) not in (int, float, type(None)):
                no(name, f"{name.rsplit('/', 1)[-1]} {weight.value!r} is no number")
        for key, what in DATASET_SWITCHES.items():
            if _on(run, f"{dataset.key}/{key}") and not (edits and key in CONTROL_PATHS):
                no(f"{dataset.key}/{key}", f"{_capital(what)} are not supported")
        frames = run.settings.get(f"{dataset.key}/num_frames")
        if frames is not None and isinstance(frames.value, int) and frames.value > 1:
            no(f"{dataset.key}/num_frames", "Video datasets are not supported")
    for key, what in {**SWITCHES, **(FLUX_SWITCHES if run.architecture in FLUX else {})}.items():
        if _on(run, key):
            no(key, f"{_capital(what)} is not supported")
    of_datasets = {f"{d.key}/{name}": plain for d in run.datasets for name, plain in OF_DATASETS.items()}
    for key, plain in {**NEUTRAL, **of_datasets}.items():
        value = run.settings.get(key)
        if value is not None and not harmless(value.value, plain):
            leave = f"leave it at {_short(plain)}" if plain else "leave it out"
            no(key, f"{key.rsplit('/', 1)[-1]} {_short(value.value)} is not supported; {leave}")
    preserved = [f"train/{name}" for name in (CLASS, BLANK) if _on(run, f"train/{name}")]
    if len(preserved) == 2:
        no(preserved[1], f"{BLANK} beside {CLASS} is not supported; ai-toolkit mixes up their prompts")
    words = [run.trigger_word, *(_on(run, f"{dataset.key}/trigger_word") for dataset in run.datasets)]
    if f"train/{CLASS}" in preserved and not any(words):
        no(preserved[0], f"{CLASS} needs a trigger_word")
    for key in ("train/min_denoising_steps", "train/max_denoising_steps"):
        value = run.settings.get(key)
        whole = value is None or value.value is None or type(value.value) is int
        if value is not None and not (whole and 0 <= (value.value or 0) <= 1000):
            no(key, f"{key.rsplit('/', 1)[-1]} {value.value!r} is not a whole number from 0 to 1000")
    first, last = (run.settings.get(f"train/{name}_denoising_steps") for name in ("min", "max"))
    low, high = first and first.value, 999 if last is None or last.value is None else last.value
    if type(low) is int and type(high) is int and low > high:
        no("train/min_denoising_steps", f"min_denoising_steps {low} is above max_denoising_steps {high}")
    for key in ("train/guidance_loss_target", "train/differential_guidance_scale"):
        value = run.settings.get(key)
        if value is None or value.value is None:
            continue
        parts = value.value if isinstance(value.value, list) and key.endswith("target") else [value.value]
        if len(parts) > 2 or not parts or any(type(part) not in (int, float) for part in parts):
            no(key, f"{key.rsplit('/', 1)[-1]} {value.value!r} is neither a number nor a pair of them")
    most = run.settings.get("train/max_loss")
    if most is not None and most.value is not None and not (type(most.value) in (int, float) and most.value > 0):
        no("train/max_loss", f"max_loss {most.value!r} is not a number above 0")
    return list(dict.fromkeys(reasons))


def _levers(run: Run) -> Iterator[tuple[str, str]]:
    """What saves memory at the price of time."""
    key = "model/layer_offloading_transformer_percent"
    percent = run.settings.get(key)
    wanted = None if percent is None or not _on(run, "model/layer_offloading") else percent.value
    if wanted is not None and not (type(wanted) in (int, float) and 0 <= wanted <= 1):
        yield key, f"layer_offloading_transformer_percent {wanted!r} is not a number from 0 to 1"
    if _on(run, "model/layer_offloading") and not run.gradient_checkpointing:
        yield "model/layer_offloading", "layer_offloading needs gradient_checkpointing: true"
    written = run.settings.get(f"train/{INTERVAL}")
    interval = 1 if written is None or written.value is None else written.value
    if type(interval) is not int or interval < 1:
        yield f"train/{INTERVAL}", f"{INTERVAL} {interval!r} is not a whole number above 0"
    elif interval > 1 and _on(run, "model/layer_offloading"):
        yield f"train/{INTERVAL}", f"{INTERVAL} {interval} does not go with layer_offloading"
    for name in COMPILE:
        if _on(run, name) and _on(run, "model/layer_offloading"):
            yield name, f"{name.rsplit('/', 1)[-1]} does not go with layer_offloading"
    mode = run.settings.get("model/compile_mode")
    if any(_on(run, name) for name in COMPILE) and mode is not None and mode.value not in (None, "default"):
        yield "model/compile_mode", f"compile_mode {mode.value} is not supported; leave it at default"


def _optimizer(run: Run) -> Iterator[tuple[str, str]]:
    if run.optimizer not in OPTIMIZERS:
        yield "optimizer", f"The optimizer {run.optimizer} is not supported; use {', '.join(OPTIMIZERS)}"
        return
    for key, value in run.optimizer_settings.items():
        what = f"The setting {key} of the optimizer {run.optimizer}"
        parts = value if isinstance(value, list | tuple) and key in ("betas", "eps") else [value]
        if key not in OPTIMIZERS[run.optimizer]:
            yield "optimizer_settings", f"{what} is not supported"
        elif not all(isinstance(part, int | float) for part in parts):
            yield "optimizer_settings", f"{what} is {value!r}, which is no number"
        elif key in ("relative_step", "warmup_init") and value:
            yield "optimizer_settings", f"{what} sets a rate of its own, which cannot be combined with lr"
    if run.optimizer in PACKAGES:
        module, package = PACKAGES[run.optimizer]
        if importlib.util.find_spec(module) is None:
            yield (
                "optimizer",
                f"The optimizer {run.optimizer} needs a package that is not here; type: pip install {package}",
            )


def _schedule(run: Run) -> Iterator[tuple[str, str]]:
    name = run.scheduler
    if name not in SCHEDULERS:
        yield "scheduler", f"The learning-rate schedule {name} is not supported; use {', '.join(SCHEDULERS)}"
        return
    for key, value in run.scheduler_settings.items():
        what = f"The setting {key} of the schedule {name}"
        if key not in SCHEDULERS[name]:
            yield "scheduler_settings", f"{what} is not supported"
        elif isinstance(value, bool) or not isinstance(value, int | float):
            yield "scheduler_settings", f"{what} is {value!r}, which is no number"
        elif key in COUNTS and (value < 1 or value != int(value)):
            yield "scheduler_settings", f"{what} is {value}, but must be a whole number above 0"
    if name == "step" and "step_size" not in run.scheduler_settings:
        yield "scheduler", "The learning-rate schedule step needs lr_scheduler_params: {step_size: …}"


def _capital(what: str) -> str:
    """The start of a sentence; a key stays as it is written in the config."""
    return what if "_" in what.split()[0] else what[0].upper() + what[1:]


def _short(value: Any) -> str:
    return "…" if isinstance(value, dict | list) else str(value).lower() if isinstance(value, bool) else str(value)


def _on(run: Run, key: str) -> bool:
    value = run.settings.get(key)
    return value is not None and bool(value.value)


def _kind(run: Run) -> str:
    return "a full fine-tune" if run.kind == "finetune" else f"a job of type {run.process_type or 'unknown'}"
