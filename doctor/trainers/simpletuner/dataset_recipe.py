"""Which of SimpleTuner's datasets the runner trains on, and what of them it refuses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...configs.refused import Reason, one_of
from ...configs.words import words
from ...configs.written import Written
from ...families import family_of
from ...model import Run
from .datasets import MOST_MEGAPIXELS, TRAINED, entries_of, kind_of, minimum, references, unit_of

# Where and how its caches are kept.
WITHOUT_EFFECT = words(
    """
    metadata_backend cache_dir_vae cache_dir text_embeds image_embeds cache_file_suffix vae_cache_clear_each_epoch
    write_batch_size preserve_data_backend_cache skip_file_discovery disable_validation hash_filenames
    shorten_filenames vae_cache_ondemand vae_cache_disable maximum_image_size target_downsample_size
    only_instance_prompt
    """
)
# Of a reference dataset sizes and crops are its source's, and with one reference its captions are not looked at.
_OF_SOURCE = (
    *("caption_strategy", "resolution", "resolution_type", "repeats", "caption_dropout_probability", "crop"),
    *("crop_aspect", "crop_style", "instance_prompt", "is_regularisation_data", "is_regularization_data"),
    *("minimum_image_size", "conditioning_data", "source_dataset_id", "instance_data_dir", "instance_data_root"),
)
# Caches, and pictures that only an evaluation looks at.
_UNTRAINED = ("text_embeds", "image_embeds", "eval")
_STRATEGIES = ("textfile", "instanceprompt", "filename")
_RESOLUTIONS = ("pixel", "area", "pixel_area")
_STRICT = "reference_strict"


def refused_sets(run: Run, options: Written) -> Iterator[Reason]:
    entries = entries_of(options)
    trained = [dataset.key for dataset in run.recipe.datasets]
    sources = {key: references(key, entries) for key in trained if key in entries}
    for key, own in entries.items():
        kind = kind_of(own)
        if kind == "conditioning":
            yield from _reference(run, key, own, [source for source, others in sources.items() if key in others])
        elif kind in _UNTRAINED:
            options.raw(key)
        elif key not in trained or kind != TRAINED[0]:
            yield key, f"A dataset of the type {kind} is not supported"
        else:
            yield from _pictures(options, key, own)
            yield from _references(key, own, sources[key], entries)


def _pictures(options: Written, key: str, own: Written) -> Iterator[Reason]:
    if own.text("type", default="local") != "local":
        kind = own.text("type")
        options.raw(key)
        what = f"A dataset of the type {kind} is not supported"
        yield f"{key}/type", f"{what}; put its pictures in a folder and use local"
        return
    both = options.below(key, "")
    strategy, kind = both.text("caption_strategy", default="filename"), unit_of(both)
    known = ", ".join(_STRATEGIES)
    yield from one_of(f"{key}/caption_strategy", "caption_strategy", strategy, _STRATEGIES, known)
    if kind not in _RESOLUTIONS:
        yield f"{key}/resolution_type", f"resolution_type {kind} is not known; use {', '.join(_RESOLUTIONS)}"
    yield from _too_large(options, key, own)
    if own.flag("crop"):
        aspect, style = own.text("crop_aspect", default="square"), own.text("crop_style", default="random")
        yield from one_of(f"{key}/crop_aspect", "crop_aspect", aspect, ("square",), "square")
        yield from one_of(
            f"{key}/crop_style", "crop_style", style, ("random", "center", "centre"), "center or random"
        )


def _reference(run: Run, key: str, own: Written, sources: list[str]) -> Iterator[Reason]:
    """A dataset of pictures that are edited into others."""
    name, kind = own.text("id", default=key), own.text("conditioning_type", default="none")
    if not family_of(run.recipe.architecture).edits:
        yield key, f"The conditioning dataset {name} is not supported: only Flux Kontext is given images"
    elif kind != _STRICT:
        yield f"{key}/conditioning_type", f"conditioning_type {kind} is not supported; use {_STRICT}"
    elif own.text("type", default="local") != "local":
        yield f"{key}/type", f"A conditioning dataset of the type {own.text('type')} is not supported; use local"
    elif not sources:
        yield key, f"No dataset names {name} in its conditioning_data"
    own.raw(*_OF_SOURCE)


def _references(key: str, own: Written, found: list[str], entries: Mapping[str, Written]) -> Iterator[Reason]:
    """The conditioning datasets that one of pictures names."""
    if len(found) > 1:
        yield f"{key}/conditioning_data", "Several conditioning datasets for one dataset are not supported; name one"
    named = own.raw("conditioning_data")
    known = [entries[one].text("id") for one in found]
    for name in named if isinstance(named, list) else [named]:
        if name and str(name) not in known:
            yield f"{key}/conditioning_data", f"conditioning_data names {name}, which is no conditioning dataset here"


def _too_large(options: Written, key: str, own: Written) -> Iterator[Reason]:
    """A least size above which SimpleTuner leaves every picture out."""
    unit, size = minimum(key, options)
    if unit == "pixel" or size <= MOST_MEGAPIXELS:
        return
    if own.raw("minimum_image_size") is None:
        what = f"minimum_image_size {size:g} of the whole run counts megapixels; write one of pixels in the dataset"
        yield "minimum_image_size", what
    else:
        most = f"{MOST_MEGAPIXELS:g}"
        what = f"minimum_image_size asks for {size:g} megapixels; SimpleTuner takes no picture above {most}"
        yield f"{key}/minimum_image_size", what
