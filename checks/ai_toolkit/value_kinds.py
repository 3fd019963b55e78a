"""The part of CFG004 about values of the wrong kind: numbers in quotes, words where numbers belong."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...doctor.model import Finding, Run, Schema
from ..keys.misspelled import words
from ..keys.values import CACHE, FIRST_SAVE, LORA, OPTIMIZER, SAMPLE, START, STEP, bad, number_of, whole

# keys that the trainer computes with, by their section: read and tried at commit 27a03a91 (2026-08-21)
_NUMBERS: dict[str, frozenset[str]] = {
    "train": words("""
        steps lr unet_lr text_encoder_lr batch_size gradient_accumulation gradient_accumulation_steps
        max_grad_norm min_denoising_steps max_denoising_steps num_train_timesteps noise_offset start_step
        switch_boundary_every guidance_loss_target differential_guidance_scale reg_weight max_loss
        """),
    "train/ema_config": words("ema_decay"),
    "network": words("linear rank linear_alpha alpha conv conv_alpha dropout lokr_factor"),
    "save": words("save_every max_step_saves_to_keep"),
    "sample": words("sample_every sample_start_step width height guidance_scale sample_steps num_frames fps"),
    "sample/samples/*": words("width height guidance_scale sample_steps num_frames fps"),
    "datasets/*": words("num_repeats num_frames fps bucket_tolerance keep_tokens loss_multiplier"),
    "model": words("layer_offloading_transformer_percent layer_offloading_text_encoder_percent"),
    "logging": words("log_every"),
    "": words("performance_log_every"),
}
# what the trainer makes a number of, and when
_CONVERTED = {
    "datasets/*/caption_dropout_rate": START,
    "datasets/*/network_weight": START,
    "datasets/*/token_dropout_rate": START,
    "sample/samples/*/seed": SAMPLE,
    "sample/seed": SAMPLE,
    **dict.fromkeys((f"slider/datasets/*/{name}" for name in ("network_weight", "neg_weight", "pos_weight")), START),
}
# numbers that are refused with a point, 16.0 too, and when
_WHOLE_NUMBERS = {
    "network/linear": LORA,
    "network/rank": LORA,
    "train/batch_size": LORA,
    "train/gradient_accumulation": STEP,
    "train/steps": STEP,
    "sample/sample_steps": SAMPLE,
    "sample/samples/*/sample_steps": SAMPLE,
    "save/max_step_saves_to_keep": FIRST_SAVE,
}
# numbers for which the trainer takes null as it is: for others it has a default, or does without
_NEVER_EMPTY = {
    "train/steps": STEP,
    "train/lr": OPTIMIZER,
    "train/batch_size": LORA,
    "train/gradient_accumulation": START,
    "train/max_grad_norm": STEP,
    "save/max_step_saves_to_keep": FIRST_SAVE,
    "datasets/*/num_repeats": LORA,
    "datasets/*/resolution": LORA,
    "datasets/*/caption_dropout_rate": START,
}
_COUNTED = "{key} is {value}, and the trainer counts in whole numbers only. Write it without a point or exponent."
_WHOLE = "{key} is {value!r}; a list of pictures is repeated by a whole number, written without a point."
_SWITCHES = frozenset(("model/quantize_te", "train/bypass_guidance_embedding"))  # whose defaults are computed
_ON = ("true", "yes", "on", "1", "")
_OFF = ("false", "no", "off", "0", "none")
_SECTIONS = ("network", "train", "model", "save", "sample", "logging")


def kinds(run: Run, schema: Schema) -> Iterator[Finding]:
    """Numbers in quotes, words where numbers belong, and sections that are none."""
    for name in _SECTIONS:
        value = run.setting(name)
        if value is not None and not isinstance(value, dict):
            yield bad(run, name, "{key} must be a section with keys of its own, not {value!r}.", START)
    datasets = run.setting("datasets")
    if datasets is not None and not isinstance(datasets, list):
        yield bad(run, "datasets", "{key} must be a list: start each entry with '- '.", START)
    for key, written in run.settings.items():
        yield from _kind(run, schema, key, written.value)
    for dataset in run.recipe.datasets:
        yield from _resolution(run, f"{dataset.key}/resolution")
        yield from _repeats(run, f"{dataset.key}/num_repeats")


def _kind(run: Run, schema: Schema, key: str, value: object) -> Iterator[Finding]:
    """A number that is empty, text or a list, or a switch that is text."""
    place = re.sub(r"/\d+(?=/|$)", "/*", key)
    section, _, name = place.rpartition("/")
    known = (schema.section(section) or {}).get(name)
    kind = "" if known is None else known.kind
    counts = name in _NUMBERS.get(section, ())
    late = OPTIMIZER if name == "lr" else STEP
    unsure = not (schema.source or run.by_runner)
    if name in schema.forms and isinstance(value, str | list | dict) and not run.by_runner:
        return  # the checkout looks what it is before it counts with it
    if value is None:
        if place in _NEVER_EMPTY and _is_reached(run, key):
            why = "{key} is left empty, and the trainer computes with it. Write a number."
            yield bad(run, key, why, _NEVER_EMPTY[place])
    elif counts and isinstance(value, list | dict) and name != "guidance_loss_target":
        yield bad(run, key, "{key} must be one number.", STEP, unsure=unsure)
    elif counts and isinstance(value, str):
        number = number_of(value)
        if number is None:
            yield bad(run, key, "{key} is {value!r}, which is no number.", late, unsure=unsure)
        elif name == "num_repeats" and whole(number) is None:
            yield bad(run, key, _WHOLE, LORA)
        else:
            why = "{key} is {value!r}, which is text because of its quotes, and the trainer computes with it."
            counted = None if kind == "float" else whole(number)
            yield bad(run, key, why, late, new=number if counted is None else counted)
    elif place in _CONVERTED and isinstance(value, str) and not _is_float(value):
        yield bad(run, key, "{key} is {value!r}, which is no number.", _CONVERTED[place], unsure=unsure)
    elif place in _WHOLE_NUMBERS and isinstance(value, float) and value >= 1 and _is_reached(run, key):
        if not (run.by_runner and value.is_integer()):
            yield bad(run, key, _COUNTED, _WHOLE_NUMBERS[place], new=whole(value))
    # "no" is a negative prompt like any other
    elif (
        isinstance(value, str)
        and (kind == "bool" or place in _SWITCHES)
        and name != "neg"
        and value.strip().lower() not in _ON
    ):
        meant = "false" if value.strip().lower() in _OFF else "true or false"
        why = f"{{key}} is {{value!r}}, and any text counts as true. Write {meant} without quotes."
        yield bad(run, key, why, "the setting is on", severity="warning")


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _resolution(run: Run, key: str) -> Iterator[Finding]:
    written = run.setting(key)
    entries = written if isinstance(written, list) else [written]
    if any(isinstance(entry, str) for entry in entries):
        sizes = [number_of(entry) if isinstance(entry, str) else entry for entry in entries]
        good = all(isinstance(entry, int) for entry in sizes)
        new = (sizes if isinstance(written, list) else sizes[0]) if good else None
        yield bad(run, key, "{key} is {value!r}, which is text; the trainer needs whole numbers.", CACHE, new=new)
    elif written == []:
        others = any(run.setting(f"{other.key}/resolution") != [] for other in run.recipe.datasets)
        why = "{key} is an empty list, and the trainer takes each picture once for every size in it. Name one."
        when = "the pictures of this dataset are not trained" if others else STEP
        yield bad(run, key, why, when, severity="warning" if others and not run.by_runner else None)


def _repeats(run: Run, key: str) -> Iterator[Finding]:
    """The trainer multiplies the list of pictures where num_repeats is above 1, and leaves it as it is below."""
    value = run.setting(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if value < 1:
        why = "{key} is {value!r}, but every picture is taken once all the same."
        yield bad(run, key, why, "its pictures are trained until the dataset is taken out", severity="warning")
    elif isinstance(value, float) and value > 1 and not (run.by_runner and value.is_integer()):
        yield bad(run, key, _WHOLE, LORA, new=whole(value))


def _is_reached(run: Run, key: str) -> bool:
    """Whether the trainer comes to the line that computes with a number."""
    recipe = run.recipe
    if key == "network/linear":  # a full LoKr asks for no rank, and rank goes before
        return recipe.network.type != "lokr" and run.setting("network/rank") is None
    if key == "train/max_grad_norm":
        return recipe.optimizer.name != "adafactor"  # nothing is clipped for it
    if key == "save/max_step_saves_to_keep":  # old saves are counted at each save but the last
        every = run.written("save_every")
        return (every is None or every.value is not None) and 0 < recipe.checkpoints.every < recipe.steps
    return True
