"""What of an ai-toolkit config zdoctor's own runner would not obey: settings that it lacks, and values of no type."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from ...configs.defaults import short
from ...families import family_of
from ...model import Run, Schema, Unknown
from ...model.recipe import Dataset
from ...model.record import replace
from ...model.trainer import Folders
from .neutral import (
    CONTROL_PATHS,
    CONTROL_SETTINGS,
    DATASET_SWITCHES,
    NEUTRAL,
    OF_DATASETS,
    SECTIONS,
    SWITCHES,
    TEXTS,
    TEXTS_OF_DATASETS,
    harmless,
)
from .recipe import BLANK, CLASS

_WEIGHTS = ("cfg_scale", "reg_weight", *(f"{name}_multiplier" for name in (CLASS, BLANK, "inverted_mask_prior")))
_INTERVAL = "gradient_checkpointing_interval"
# The key or field that is at fault, and a sentence about it without its full stop.
Reason = tuple[str, str]


def for_runner(run: Run, schema: Schema | Unknown, folders: Folders) -> Run:
    """The run with what zdoctor's runner would not obey; its words are the runner's own."""
    return replace(run, refused=refusals(run))


def differences(run: Run) -> list[str]:
    """None: the runner is held against this trainer's own steps."""
    return []


def refusals(run: Run) -> tuple[Reason, ...]:
    """The settings that the runner would not obey, each with a sentence."""
    parts: tuple[Callable[[Run], Iterator[Reason]], ...] = (
        *(_network, _updates, _storage, _levers, _datasets, _lacking, _preservation, _bounds, _types),
    )
    return tuple(reason for part in parts for reason in part(run))


def _network(run: Run) -> Iterator[Reason]:
    factor = run.setting("network/lokr_factor")
    if run.recipe.network.type == "lokr" and factor not in (None, run.recipe.network.lokr_factor):
        yield "network/lokr_factor", f"lokr_factor {factor!r} is neither -1 nor a whole number above 0"
    if run.recipe.network.narrowed:
        yield "network/network_kwargs", "network_kwargs is not supported"
    dropout = run.setting("network/dropout")
    if dropout and not isinstance(dropout, int | float):
        yield "network/dropout", f"The dropout {dropout!r} is not a number from 0 to below 1"


def _updates(run: Run) -> Iterator[Reason]:
    apart = run.setting("train/gradient_accumulation_steps")
    if isinstance(apart, int) and apart not in (0, 1):
        yield (
            "train/gradient_accumulation_steps",
            f"gradient_accumulation_steps {apart} is not supported (ai-toolkit counts each batch as a step and "
            "forgets the gradients of all but the last); write gradient_accumulation, which counts updates",
        )


def _storage(run: Run) -> Iterator[Reason]:
    if run.recipe.precision.quantization is not None and "|" in str(run.setting("model/qtype", "")):
        yield (
            "quantization",
            "An accuracy recovery adapter is not supported; write qtype without | and what follows it",
        )


def _levers(run: Run) -> Iterator[Reason]:
    """What saves memory at the price of time."""
    key = "model/layer_offloading_transformer_percent"
    wanted = run.setting(key, 1)
    if run.recipe.offload.share is not None and not (type(wanted) in (int, float) and 0 <= wanted <= 1):
        yield key, f"layer_offloading_transformer_percent {wanted!r} is not a number from 0 to 1"
    interval = run.setting(f"train/{_INTERVAL}", 1)
    if type(interval) is not int or interval < 1:
        yield f"train/{_INTERVAL}", f"{_INTERVAL} {interval!r} is not a whole number above 0"
    mode = run.setting("model/compile_mode", "default")
    if run.recipe.offload.compile and mode != "default":
        yield "model/compile_mode", f"compile_mode {mode} is not supported; leave it at default"


def _datasets(run: Run) -> Iterator[Reason]:
    for dataset in run.recipe.datasets:
        yield from _dataset(run, dataset)


def _dataset(run: Run, dataset: Dataset) -> Iterator[Reason]:
    recipe, at = run.recipe, dataset.key
    edits = family_of(recipe.architecture).edits
    for key, plain in CONTROL_SETTINGS.items() if edits else ():
        value = run.setting(f"{at}/{key}")
        if not harmless(value, plain):
            yield f"{at}/{key}", f"{key} {short(value)} is not supported; leave it out"
    if run.setting(f"{at}/batch_size", recipe.batch_size) != recipe.batch_size:
        yield f"{at}/batch_size", "A batch size of one dataset is not supported; set train.batch_size"
    for name in (f"{at}/loss_multiplier", f"{at}/mask_min_value", *(f"train/{name}" for name in _WEIGHTS)):
        weight = run.setting(name, 1)
        if type(weight) not in (int, float) or not math.isfinite(weight):
            yield name, f"{_last(name)} {weight!r} is no number"
    for key, what in DATASET_SWITCHES.items():
        if run.setting(f"{at}/{key}") and not (edits and key in CONTROL_PATHS):
            yield f"{at}/{key}", f"{_capital(what)} are not supported"
    frames = run.setting(f"{at}/num_frames")
    if isinstance(frames, int) and frames > 1:
        yield f"{at}/num_frames", "Video datasets are not supported"
    repeats = run.setting(f"{at}/num_repeats")
    if isinstance(repeats, float) and not repeats.is_integer():
        yield f"{at}/num_repeats", f"num_repeats {repeats:g} is not a whole number"
    dropout = run.setting(f"{at}/caption_dropout_rate", 0.0)
    if not isinstance(dropout, int | float):
        yield f"{at}/caption_dropout_rate", f"The caption dropout {dropout!r} is not a number from 0 to 1"


def _lacking(run: Run) -> Iterator[Reason]:
    """What the runner does not have, by the tables."""
    recipe = run.recipe
    switches = {**SWITCHES, **family_of(recipe.architecture).ai_toolkit.switches}
    for key, what in switches.items():
        if run.setting(key):
            yield key, f"{_capital(what)} is not supported"
    if recipe.unload_text_encoder and not recipe.cache_text_embeddings:  # else each caption counts, from the cache
        yield (
            "unload_text_encoder",
            "unload_text_encoder without cache_text_embeddings, which ignores captions, is not supported",
        )
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
    words = [run.recipe.trigger_word, *(dataset.trigger_word for dataset in run.recipe.datasets)]
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


def _types(run: Run) -> Iterator[Reason]:
    """Values of a type that the reader takes for nothing."""
    rank = run.setting("network/linear")
    if isinstance(rank, float) and not rank.is_integer():
        yield "rank", f"The rank {rank:g} is not a whole number"
    prompts = run.setting("sample/prompts", [])
    listed = isinstance(prompts, list) and all(isinstance(one, str) for one in prompts)
    if not run.recipe.validation.disabled and not listed:
        yield "sample/prompts", "sample.prompts is not a list of texts; write each prompt behind a dash"
    of_datasets = (f"{dataset.key}/{name}" for dataset in run.recipe.datasets for name in TEXTS_OF_DATASETS)
    for key in (*TEXTS, *of_datasets):
        text = run.setting(key)
        if text and not isinstance(text, str):
            yield key, f"{_last(key)} {text!r} is not a text; write it in quotes"
    for key in SECTIONS:
        section = run.setting(key)
        if section and not isinstance(section, dict):
            yield key, f"{_last(key)} {section!r} holds no settings; write them as name: value"


def _last(key: str) -> str:
    return key.rsplit("/", 1)[-1]


def _capital(what: str) -> str:
    """The start of a sentence; a key stays as it is written in the config."""
    return what if "_" in what.split()[0] else what[0].upper() + what[1:]
