"""Numbers with which a run would learn nothing or paint nothing, said before it starts. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator

from ...model.run import Run

# The sides of the smallest picture that the models take, in pixels: one cell.
CELL = 16
# What is written as text, and what as several settings; readers take another type for nothing.
TEXTS = ("trigger_word", "model/assistant_lora_path", "model/extras_name_or_path")
TEXTS_OF_DATASETS = ("trigger_word", "default_caption", "caption_ext", "mask_path", "dataset_path")
SECTIONS = ("train/ema_config", "train/optimizer_params", "train/lr_scheduler_params")
# Bytes of a run's name: file systems take 255, and the longest that is added is for a save while it is written.
LONGEST = 200


def limits(run: Run) -> Iterator[tuple[str, str]]:
    """The key or field that is at fault, and a sentence about it without its full stop."""
    recipe = run.recipe
    if "/" in run.name or "\\" in run.name:
        yield "name", f"The name {run.name} has a slash, and files are named after it; write a name without"
    if len(run.name.encode()) > LONGEST:
        yield "name", f"The name has {len(run.name.encode())} bytes, and files named after it would be too long"
    if recipe.ema.use and not 0 <= recipe.ema.decay < 1:
        yield "ema_decay", f"The ema_decay {recipe.ema.decay:g} is not a number from 0 to below 1"
    rank = run.setting("network/linear")
    if isinstance(rank, float) and not rank.is_integer():
        yield "rank", f"The rank {rank:g} is not a whole number"
    prompts = run.setting("sample/prompts", [])
    if not recipe.validation.disabled and not (
        isinstance(prompts, list) and all(isinstance(one, str) for one in prompts)
    ):
        yield "sample/prompts", "sample.prompts is not a list of texts; write each prompt behind a dash"
    for key in (*TEXTS, *(f"{dataset.key}/{name}" for dataset in recipe.datasets for name in TEXTS_OF_DATASETS)):
        text = run.setting(key)
        if text and not isinstance(text, str):
            yield key, f"{key.rpartition('/')[2]} {text!r} is not a text; write it in quotes"
    for key in SECTIONS:
        section = run.setting(key)
        if section and not isinstance(section, dict):
            yield key, f"{key.rpartition('/')[2]} {section!r} holds no settings; write them as name: value"
    for dataset in recipe.datasets:
        repeats = run.setting(f"{dataset.key}/num_repeats")
        if isinstance(repeats, float) and not repeats.is_integer():
            yield f"{dataset.key}/num_repeats", f"num_repeats {repeats:g} is not a whole number"
        written = run.setting(f"{dataset.key}/caption_dropout_rate", dataset.caption_dropout)
        if not isinstance(written, int | float) or not 0 <= dataset.caption_dropout <= 1:
            chance = f"The caption dropout {written!r} is not a number from 0 to 1"
            yield f"{dataset.key}/caption_dropout_rate", chance
        small = [resolution for resolution in dataset.resolutions if resolution < CELL]
        if small:
            yield (
                f"{dataset.key}/resolution",
                f"The resolution {small[0]} is below {CELL} pixels, the smallest picture",
            )
    for sample in () if recipe.validation.disabled else recipe.validation.prompts:
        if min(sample.width, sample.height) < CELL:
            yield "samples", f"A sample of {sample.width} x {sample.height} pixels is smaller than {CELL} x {CELL}"
