"""What of an ai-toolkit config zdoctor's own runner would not obey, and what of it has no effect."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from ...configs.refused import Reason, is_unknown, known, unread_settings
from ...configs.words import names_beside, same, short
from ...configs.written import Written
from ...families import family_of
from ...families.network import TITLES
from ...families.part_files import with_whole
from ...model import Run, Schema, Unknown
from ...model.datasets import Dataset
from ...model.record import replace
from ...model.trainer import Folders
from .model_keys import unread_kwargs, unread_model_keys
from .network import CHOOSING, FULL, NETWORK_TYPES, PLUS
from .recipe import BLANK, CLASS, SLIDER

_WEIGHTS = ("cfg_scale", "reg_weight", *(f"{name}_multiplier" for name in (CLASS, BLANK, "inverted_mask_prior")))
_INTERVAL = "gradient_checkpointing_interval"
# What is read for its checks, or is refused as a whole.
_LACKING = {
    "train/prompt_dropout_prob": "prompt dropout (write caption_dropout_rate on the dataset)",
    **{name: f"the section {name}" for name in ("adapter", "embedding", "decorator", "slider")},
}
# How control images are read; of an architecture that edits them, each must be this or not written.
_CONTROL_SETTINGS: dict[str, Any] = {"full_size_control_images": True, "control_transparent_color": [0, 0, 0]}
_CONTROL_PATHS = ("control_path", "control_path_1", "control_path_2", "control_path_3")
_LACKING_OF_DATASETS = {
    **dict.fromkeys((*_CONTROL_PATHS, "controls"), "control images"),
    **dict.fromkeys(("augments", "augmentations"), "augmentations"),
}
# What is written as text, and what as several settings; the reader takes another type for nothing.
_TEXTS = ("trigger_word", "model/assistant_lora_path", "model/extras_name_or_path")
_TEXTS_OF_DATASETS = ("trigger_word", "default_caption", "caption_ext", "mask_path", "dataset_path")
_SECTIONS = ("train/ema_config", "train/optimizer_params", "train/lr_scheduler_params")

_WITHOUT_EFFECT = {section: frozenset(names) for section, names in names_beside(__file__)["without_effect"].items()}
# Sections of which nothing is learnt.
_IDLE = ("guidance", "sample", "first_sample", "train/validation_config")


def for_runner(run: Run, schema: Schema | Unknown, folders: Folders) -> Run:
    """The run with what zdoctor's runner would not obey; its words are the runner's own."""
    if run.process_type == SLIDER and run.recipe.loss.slider is not None and run.setting("network/type"):
        run = replace(run, kind="lora")  # a LoRA of another target
    w = Written(run.settings, read=set(run.read))
    refused = [reason for part in _PARTS for reason in part(run, w)]
    found = known(run, schema)
    unread = {*unread_model_keys(run), *(f"model/model_kwargs/{name}" for name in unread_kwargs(run))}

    def does_nothing(key: str) -> bool:
        return _is_without_effect(key) or key in unread or is_unknown(key, found)

    others, idle = unread_settings(run, w, found, does_nothing)
    made = replace(run, refused=(*refused, *others), differences=tuple(idle), read=frozenset(w.read))
    single = (run.recipe.base_model or "").lower().endswith(".safetensors")
    return with_whole(made, "model/name_or_path") if single else made


def _is_without_effect(key: str) -> bool:
    """Whether what is learnt is the same whatever is written there."""
    section, _, name = re.sub(r"/\d+(?=/)", "/*", key).rpartition("/")
    return name in _WITHOUT_EFFECT.get(section, ()) or f"{key}/".startswith(tuple(f"{one}/" for one in _IDLE))


def _network(run: Run, w: Written) -> Iterator[Reason]:
    kind = w.text("network/type", default="lora")
    if kind.lower() not in NETWORK_TYPES:
        yield "network/type", f"The network type {kind} is not supported; use lora, dora or lokr"
    factor = w.raw("network/lokr_factor")
    if run.recipe.network.type == "lokr" and factor not in (None, run.recipe.network.lokr_factor):
        yield "network/lokr_factor", f"lokr_factor {factor!r} is neither -1 nor a whole number above 0"
    if run.recipe.network.narrowed:
        told = (
            f"network_kwargs other than {', '.join((*CHOOSING, FULL))}, which are lists of words, are not supported"
        )
        yield "network/network_kwargs", told
    if run.recipe.network.full and run.recipe.network.initial_weights:
        yield "network/pretrained_lora_path", f"pretrained_lora_path does not go with {FULL}"
    ratio, at = run.recipe.network.lora_plus_ratio, f"network/network_kwargs/{PLUS}"
    if ratio != 1.0 and not (0 < ratio < math.inf and type(w.raw(at)) in (int, float)):
        yield at, f"The ratio of LoRA+ {w.raw(at)!r} is no number above 0"
    elif ratio != 1.0 and run.recipe.network.type not in ("lora", "dora"):
        yield at, "LoRA+ is of a LoRA or DoRA only"
    dropout = w.raw("network/dropout")
    if dropout and run.recipe.network.type == "dora":
        # which leaves out other values for the lengths than for the LoRA there
        yield "network/dropout", f"Dropout of a {TITLES.get(run.recipe.network.type, '')} is not supported"
    if dropout and not isinstance(dropout, int | float):
        yield "network/dropout", f"The dropout {dropout!r} is not a number from 0 to below 1"


def _updates(run: Run, w: Written) -> Iterator[Reason]:
    apart = w.raw("train/gradient_accumulation_steps")
    if isinstance(apart, int) and apart not in (0, 1):
        yield (
            "train/gradient_accumulation_steps",
            f"gradient_accumulation_steps {apart} is not supported (ai-toolkit counts each batch as a step and "
            "forgets the gradients of all but the last); write gradient_accumulation, which counts updates",
        )


def _storage(run: Run, w: Written) -> Iterator[Reason]:
    if run.recipe.precision.quantization is not None and "|" in str(w.raw("model/qtype", default="")):
        told = "An accuracy recovery adapter is not supported; write qtype without | and what follows it"
        yield "quantization", told


def _push(run: Run, w: Written) -> Iterator[Reason]:
    if w.flag("save/push_to_hub") and not run.recipe.checkpoints.push_to:
        yield "save/push_to_hub", "push_to_hub needs hf_repo_id, the repository to push to"


def _levers(run: Run, w: Written) -> Iterator[Reason]:
    """What saves memory at the price of time."""
    key = "model/layer_offloading_transformer_percent"
    wanted = w.raw(key, default=1)
    if run.recipe.offload.share is not None and not (type(wanted) in (int, float) and 0 <= wanted <= 1):
        yield key, f"layer_offloading_transformer_percent {wanted!r} is not a number from 0 to 1"
    interval = w.raw(f"train/{_INTERVAL}", default=1)
    if type(interval) is not int or interval < 1:
        yield f"train/{_INTERVAL}", f"{_INTERVAL} {interval!r} is not a whole number above 0"
    mode = w.raw("model/compile_mode", default="default")
    if run.recipe.offload.compile and mode != "default":
        yield "model/compile_mode", f"compile_mode {mode} is not supported; leave it at default"


def _datasets(run: Run, w: Written) -> Iterator[Reason]:
    for dataset in run.recipe.datasets:
        yield from _dataset(run, w, dataset)


def _dataset(run: Run, w: Written, dataset: Dataset) -> Iterator[Reason]:
    recipe, at = run.recipe, dataset.key
    edits = family_of(recipe.architecture).edits
    for key, plain in _CONTROL_SETTINGS.items() if edits else ():
        value = w.raw(f"{at}/{key}")
        if value is not None and not same(value, plain):
            yield f"{at}/{key}", f"{key} {short(value)} is not supported; leave it out"
    if w.raw(f"{at}/batch_size", default=recipe.batch_size) != recipe.batch_size:
        yield f"{at}/batch_size", "A batch size of one dataset is not supported; set train.batch_size"
    for name in (f"{at}/loss_multiplier", f"{at}/mask_min_value", *(f"train/{name}" for name in _WEIGHTS)):
        weight = w.raw(name, default=1)
        if type(weight) not in (int, float) or not math.isfinite(weight):
            yield name, f"{_last(name)} {weight!r} is no number"
    for key, what in _LACKING_OF_DATASETS.items():
        if w.raw(f"{at}/{key}") and not (edits and key in _CONTROL_PATHS):
            yield f"{at}/{key}", f"{_capital(what)} are not supported"
    if dataset.drawn is not None and recipe.cache_text_embeddings:
        told = "does not go with cache_text_embeddings, where ai-toolkit draws captions once or not at all"
        name = "shuffle_tokens" if dataset.drawn.shuffle else "token_dropout_rate"
        yield f"{at}/{name}", f"{name} {told}"
    frames = w.raw(f"{at}/num_frames")
    if isinstance(frames, int) and frames > 1:
        yield f"{at}/num_frames", "Video datasets are not supported"
    repeats = w.raw(f"{at}/num_repeats")
    if isinstance(repeats, float) and not repeats.is_integer():
        yield f"{at}/num_repeats", f"num_repeats {repeats:g} is not a whole number"
    dropout = w.raw(f"{at}/caption_dropout_rate", default=0.0)
    if not isinstance(dropout, int | float):
        yield f"{at}/caption_dropout_rate", f"The caption dropout {dropout!r} is not a number from 0 to 1"


def _lacking(run: Run, w: Written) -> Iterator[Reason]:
    """What the runner does not have."""
    recipe = run.recipe
    for key, what in {**_LACKING, **family_of(recipe.architecture).ai_toolkit.switches}.items():
        if w.raw(key) and not (key == "slider" and recipe.loss.slider is not None):
            yield key, f"{_capital(what)} is not supported"
    if recipe.unload_text_encoder and not recipe.cache_text_embeddings:  # else each caption counts, from the cache
        told = "unload_text_encoder without cache_text_embeddings, which ignores captions, is not supported"
        yield "unload_text_encoder", told


def _text_encoder(run: Run, w: Written) -> Iterator[Reason]:
    """Beside what the text encoder cannot be trained."""
    recipe, key = run.recipe, "train/train_text_encoder"
    if not recipe.train_text_encoder:
        return
    loss, network = recipe.loss, recipe.network
    if not family_of(recipe.architecture).ai_toolkit.trained_text:
        yield key, "Training the text encoder is not supported for this model"
    elif recipe.cache_text_embeddings or recipe.unload_text_encoder:
        yield key, "train_text_encoder does not go with cache_text_embeddings or unload_text_encoder"
    elif network.type != "lora" or network.excluded or network.full or network.initial_weights:
        yield key, "train_text_encoder goes with a new LoRA of all layers only"
    elif (
        loss.preservation is not None
        or loss.background_weight is not None
        or any(d.prior_reg for d in recipe.datasets)
    ):
        yield key, "train_text_encoder beside an answer that is to stay as it was is not supported"


def _slider(run: Run, w: Written) -> Iterator[Reason]:
    loss, datasets = run.recipe.loss, run.recipe.datasets
    if loss.slider is None:
        return
    if run.recipe.network.type not in ("lora", "lokr"):
        yield "network/type", "A concept slider is a LoRA or LoKr; another network has no other sign"
    if not loss.slider.target or loss.slider.positive == loss.slider.negative:
        yield "slider", "A concept slider needs target_class, and a positive_prompt other than its negative_prompt"
    others = loss.guidance, loss.preservation, loss.differential_guidance, loss.background_weight
    if any(one is not None for one in others) or any(d.mask_folder or d.alpha_mask or d.prior_reg for d in datasets):
        yield "slider", "A concept slider has a target of its own: masks, guidance and preservation have no say in it"


def _preservation(run: Run, w: Written) -> Iterator[Reason]:
    preserved = [f"train/{name}" for name in (CLASS, BLANK) if w.raw(f"train/{name}")]
    if len(preserved) == 2:
        yield preserved[1], f"{BLANK} beside {CLASS} is not supported; ai-toolkit mixes up their prompts"
    words = [run.recipe.trigger_word, *(dataset.trigger_word for dataset in run.recipe.datasets)]
    if f"train/{CLASS}" in preserved and not any(words):
        yield preserved[0], f"{CLASS} needs a trigger_word"


def _bounds(run: Run, w: Written) -> Iterator[Reason]:
    """Numbers within which noise, guidance and loss are to lie."""
    ends = [f"train/{name}_denoising_steps" for name in ("min", "max")]
    for key, value in ((key, w.raw(key, default=0)) for key in ends):
        if type(value) is not int or not 0 <= value <= 1000:
            yield key, f"{_last(key)} {value!r} is not a whole number from 0 to 1000"
    low, high = w.raw(ends[0]), w.raw(ends[1], default=999)
    if type(low) is int and type(high) is int and low > high:
        yield ends[0], f"min_denoising_steps {low} is above max_denoising_steps {high}"
    for key in ("train/guidance_loss_target", "train/differential_guidance_scale"):
        value = w.raw(key, default=1)
        parts = value if isinstance(value, list) and key.endswith("target") else [value]
        if len(parts) not in (1, 2) or any(type(part) not in (int, float) for part in parts):
            yield key, f"{_last(key)} {value!r} is neither a number nor a pair of them"
    most = w.raw("train/max_loss")
    if most is not None and not (type(most) in (int, float) and most > 0):
        yield "train/max_loss", f"max_loss {most!r} is not a number above 0"


def _types(run: Run, w: Written) -> Iterator[Reason]:
    """Values of a type that the reader takes for nothing."""
    rank = w.raw("network/linear")
    if isinstance(rank, float) and not rank.is_integer():
        yield "rank", f"The rank {rank:g} is not a whole number"
    prompts = w.raw("sample/prompts", default=[])
    listed = isinstance(prompts, list) and all(isinstance(one, str) for one in prompts)
    if not run.recipe.validation.disabled and not listed:
        yield "sample/prompts", "sample.prompts is not a list of texts; write each prompt behind a dash"
    of_datasets = (f"{dataset.key}/{name}" for dataset in run.recipe.datasets for name in _TEXTS_OF_DATASETS)
    for key in (*_TEXTS, *of_datasets):
        text = w.raw(key)
        if text and not isinstance(text, str):
            yield key, f"{_last(key)} {text!r} is not a text; write it in quotes"
    for key in _SECTIONS:
        section = run.setting(key)
        if section and not isinstance(section, dict):
            yield key, f"{_last(key)} {section!r} holds no settings; write them as name: value"


def _last(key: str) -> str:
    return key.rsplit("/", 1)[-1]


def _capital(what: str) -> str:
    """The start of a sentence; a key stays as it is written in the config."""
    return what if "_" in what.split()[0] else what[0].upper() + what[1:]


_OF_TRAINING = (_network, _updates, _storage, _push, _levers, _datasets, _lacking, _text_encoder)
_PARTS = (*_OF_TRAINING, _slider, _preservation, _bounds, _types)
