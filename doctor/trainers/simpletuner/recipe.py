"""What zdoctor's own runner makes of a SimpleTuner config: obeyed, without effect on what is learnt, or refused.

The runner speaks of datasets and schedules in ai-toolkit's words, so a run is put into them before it starts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from ...configs.refused import Reason, converted, one_of
from ...configs.written import Written
from ...families import family_of
from ...families.record import Family
from ...model import Dataset, Run, Schema, Unknown
from ...model.field_names import with_fields
from ...model.objective import TimestepDensity
from ...model.recipe import Logging
from ...model.record import replace
from ...model.trainer import Folders
from .datasets import buckets_of, refused_sets
from .names import NAMES
from .network import differences as differences_of_network
from .network import network_of, refused_network
from .optimizers import optimizer_of, refused_optimizer
from .options import PARSED

# By their names here: the two last are SimpleTuner's own, of which lr_warmup_steps is half the period.
_SCHEDULES = {
    **{name: name for name in ("constant", "constant_with_warmup", "linear", "polynomial")},
    **{name: f"simpletuner-{name}" for name in ("cosine", "sine")},
}
_FORMATS = ("no_change", "int8-torchao", "int8-quanto", "int8-sdnq", "fp8-quanto", "int4-quanto", "nf4-bnb")
_LOSSES = {"l2": "mse", "huber": "huber", "smooth_l1": "smooth_l1"}
_HUBER = ("snr", "exponential", "constant")
_HALF_PERIOD = 1000  # of cosine where no lr_warmup_steps are written
# Their updates are bounded by themselves: the trainer clips nothing for them.
_UNCLIPPED = ("optimi-stableadamw", "prodigy")
# what counts beside certain values of other settings; there it is asked for
_BESIDE = frozenset(("base_model_default_dtype", "disable_assistant_lora", "lora_dropout", "flux_lora_target"))
_WITHOUT_EFFECT = re.compile("|".join(NAMES["without_effect"]))


def for_runner(run: Run, schema: Schema | Unknown, folders: Folders) -> Run:
    """The run as zdoctor's runner takes it. Raises UserError with every setting that it would not obey."""
    options = Written(run.settings, PARSED, set(run.read))
    parts = (_numbers, refused_network, refused_optimizer, refused_sets)
    reasons = (reason for part in parts for reason in part(run, options))
    without_effect = partial(_is_without_effect, run, options)
    return converted(run, options, schema, reasons, lambda: as_trained(run, options), differences, without_effect)


def _is_without_effect(run: Run, options: Written, key: str) -> bool:
    name = key.rpartition("/")[2]
    if key.startswith("lycoris/"):
        return name in NAMES["without_effect_of_lycoris"]
    if key.startswith("datasets/"):
        return name in NAMES["without_effect_of_datasets"]
    return key in _BESIDE or _WITHOUT_EFFECT.fullmatch(key) is not None or _default(run, key, options.arrived(key))


def _default(run: Run, name: str, value: Any) -> bool:
    """Whether it names the place where a part of the model is looked for anyway."""
    if name == "pretrained_vae_model_name_or_path":
        return str(value) in (run.recipe.base_model, run.recipe.extras_model)
    return name == "pretrained_transformer_subfolder" and str(value).lower() in ("none", "transformer")


def _numbers(run: Run, options: Written) -> Iterator[Reason]:
    recipe = run.recipe
    if recipe.steps < 1 and _epochs(options) < 1:
        yield "steps", "Neither max_train_steps nor num_train_epochs is above 0"
    schedule, warmup = recipe.lr_scheduler.name, recipe.lr_scheduler.settings.get("warmup_steps", 0)
    if schedule == "cosine_with_restarts":
        what = "lr_scheduler cosine_with_restarts is not supported: SimpleTuner's stays at the learning rate"
        yield "scheduler", f"{what}; write constant for that"
    elif schedule == "sine" and warmup < 1:
        yield "scheduler", "lr_scheduler sine needs lr_warmup_steps, half of its period; SimpleTuner stops without"
    else:
        yield from one_of("scheduler", "lr_scheduler", schedule, _SCHEDULES, ", ".join(_SCHEDULES))
    loss = recipe.loss.type
    yield from one_of("loss_type", "loss_type", loss, _LOSSES, ", ".join(_LOSSES))
    if loss in _LOSSES and loss != "l2":
        schedule = options.text("huber_schedule", default="snr")
        yield from one_of("huber_schedule", "huber_schedule", schedule, _HUBER, ", ".join(_HUBER))
        if not options.number("huber_c", default=0.1) > 0:
            yield "huber_c", "huber_c must be a number above 0"
    precision = options.text("base_model_precision", default="no_change")
    yield from one_of("quantization", "base_model_precision", precision, _FORMATS, ", ".join(_FORMATS))
    if not 0 < _step(run, options) <= 4096 or _step(run, options) % 16:
        yield "aspect_bucket_alignment", "aspect_bucket_alignment must be a multiple of 16 pixels"
    of_trainer, auto = family_of(run.recipe.architecture).simpletuner, "flow_schedule_auto_shift"
    if of_trainer is not None and of_trainer.in_cells and options.flag(auto):  # which counts other cells there
        yield from one_of(auto, auto, "true", (), "flow_schedule_shift")
    if options.whole("ema_update_interval", default=1) < 1:
        yield "ema_update_interval", "ema_update_interval must be a whole number above 0"
    if options.text("init_lora") and recipe.network.type == "lokr":
        yield "init_lora", "init_lora with lora_type lycoris is not supported"
    elif options.text("init_lora") and recipe.network.alpha != recipe.network.rank:
        yield "init_lora", "init_lora with a lora_alpha other than lora_rank is not supported"
    if options.text("resume_from_checkpoint", default="latest") not in ("latest", "none", "None"):
        yield "resume_from_checkpoint", "Only resume_from_checkpoint: latest is supported"


def differences(run: Run, options: Written) -> Iterator[str]:
    """What the runner does in its own way where SimpleTuner has another, for a run that is not refused."""
    recipe = run.recipe
    yield from differences_of_network(run, options)
    yield "pictures are turned as their EXIF data say, and JPEG files decoded by Pillow (SimpleTuner: by OpenCV)"
    yield (
        "each picture is scaled and cut on its own, in the middle unless crop_style is random (SimpleTuner stretches "
        "those of a shape that it encodes together to their size first, and cuts without crop at a random place)"
    )
    if recipe.batch_size > 1:
        yield "a batch that pictures of one size cannot fill is filled with some of them again"
    name = optimizer_of(run, options)[0]
    if recipe.optimizer.name == "prodigy":
        yield "the optimizer is Prodigy itself (SimpleTuner: that of prodigy-plus-schedule-free)"
    elif name != recipe.optimizer.name:
        first = " (whose first twenty steps are smaller)" if recipe.optimizer.name == "adamw_bf16" else ""
        yield f"the optimizer is {name}, with SimpleTuner's settings, for {recipe.optimizer.name}{first}"
    if recipe.ema.use:
        yield "the saved LoRA is the average (SimpleTuner saves both)"
    if options.text("init_lora") and not options.has("init_lora_step"):
        yield "the run begins at step 0 (SimpleTuner: at the step that the file of init_lora names, if it does)"
    if any(dataset.control_folders for dataset in recipe.datasets):
        yield "the model is told one noise level, as in its pipeline (SimpleTuner: 0 for the reference's part)"
    if any(options.text(f"{d.key}/caption_strategy") == "textfile" for d in recipe.datasets):
        yield "a caption file is one caption, also where it has several lines"


def as_trained(run: Run, options: Written) -> Run:
    """The run as the runner takes it."""
    recipe, epochs = run.recipe, _epochs(options)
    of_trainer = family_of(recipe.architecture).simpletuner
    optimizer, optimizer_settings = optimizer_of(run, options)
    interval, warmup = options.whole("ema_update_interval", default=1), options.whole("ema_warmup_steps")
    return replace(
        run,
        recipe=with_fields(
            recipe,
            {
                "datasets": tuple(_dataset(run, one, options) for one in recipe.datasets),
                "epochs": epochs if recipe.steps < 1 else 0,
                # SimpleTuner's settings for prodigy hold a rate, which comes before that of the config
                "learning_rate": 1.0 if recipe.optimizer.name == "prodigy" else recipe.learning_rate,
                "max_grad_norm": 0.0 if recipe.optimizer.name in _UNCLIPPED else recipe.max_grad_norm,
                "clip_method": options.text("grad_clip_method", default="value"),
                "literal_captions": True,
                "network": network_of(run, options),
                "optimizer": optimizer,
                "optimizer_settings": optimizer_settings,
                "scheduler": _SCHEDULES[recipe.lr_scheduler.name],
                "scheduler_settings": _schedule(run, options),
                "timestep_type": "drawn",
                "timestep_sampling.density": _density(run, options),
                "latent_mean": of_trainer is not None and of_trainer.mode,
                "mask_padding": of_trainer is not None and of_trainer.masked,
                "loss_type": _LOSSES[recipe.loss.type],
                "loss.threshold": options.number("huber_c", default=0.1),
                "loss.threshold_schedule": options.text("huber_schedule", default="snr"),
                "offload.interval": max(1, recipe.offload.interval // recipe.offload.segment),
                "offload.segment": 1,
                "ema.interval": interval if recipe.ema.use else 1,
                "ema.warmup": warmup if recipe.ema.use else None,
                "logging": _logging(run, options),
                **_pushed(options),
            },
        ),
    )


def _dataset(run: Run, dataset: Dataset, options: Written) -> Dataset:
    own = options.below(dataset.key)
    return replace(
        dataset,
        buckets=buckets_of(dataset.key, options, _step(run, options)),
        random_crop=own.flag("crop") and own.text("crop_style", default="random") == "random",
    )


def _logging(run: Run, options: Written) -> Logging:
    if not options.raw("report_to"):
        return Logging()
    return Logging(
        report_to=options.names("report_to"),
        project=options.text("tracker_project_name", default="simpletuner-training"),
        run_name=options.text("tracker_run_name", default=run.name),
        every=1,
    )


def _pushed(options: Written) -> dict[str, Any]:
    if not options.flag("push_to_hub"):
        return {}
    name = options.text("hub_model_id") or options.text("tracker_project_name", default="simpletuner-training")
    return {"checkpoints.push_to": name, "checkpoints.push_private": options.flag("model_card_private")}


def _epochs(options: Written) -> int:
    return options.whole("num_train_epochs", default=1)


def _schedule(run: Run, options: Written) -> dict[str, Any]:
    recipe, end, power = run.recipe, options.number("lr_end", default=4e-7), options.number("lr_power", default=0.8)
    if recipe.lr_scheduler.name == "constant":  # which has no warm-up, whatever is written
        return {}
    warmup = recipe.lr_scheduler.settings.get("warmup_steps", 0)
    made: dict[str, Any] = {"num_warmup_steps": warmup}
    if recipe.lr_scheduler.name in ("cosine", "sine"):
        return {"half_period": warmup if warmup > 0 else _HALF_PERIOD, "lr_end": end}
    if recipe.lr_scheduler.name == "polynomial":
        made |= {"lr_end": end, "power": power}
    return made


def _step(run: Run, options: Written) -> int:
    """The pixels between sizes, which SimpleTuner leaves to the config for few families."""
    of_trainer = family_of(run.recipe.architecture).simpletuner
    written = options.whole("aspect_bucket_alignment", default=64)
    return 64 if of_trainer is None else of_trainer.step or written


def _density(run: Run, options: Written) -> TimestepDensity:
    """How noise levels are drawn; flow_schedule_auto_shift puts flow_schedule_shift aside (safety_check.py)."""
    family = family_of(run.recipe.architecture)
    shift = options.number("flow_schedule_shift", default=3.0)
    uniform = options.flag("flow_use_uniform_schedule")
    return TimestepDensity(
        density="uniform" if uniform else "logit_normal",
        spread=options.number("flow_sigmoid_scale", default=1.0),
        shift=_auto_shift(family) if options.flag("flow_schedule_auto_shift") else shift if shift > 0 else 1.0,
        bent=family.simpletuner is not None and family.simpletuner.bent and not uniform,
    )


def _auto_shift(family: Family) -> tuple[float, float, float, float]:
    """The cells of two pictures, each before its mu, as the model's own scheduler has them."""
    scheduler = family.scheduler({})
    few, many = scheduler.get("base_image_seq_len", 256), scheduler.get("max_image_seq_len", 4096)
    return float(few), scheduler.get("base_shift", 0.5), float(many), scheduler.get("max_shift", 1.15)
