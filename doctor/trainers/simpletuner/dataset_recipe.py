"""Which of SimpleTuner's datasets the runner trains on, and what of them it refuses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...configs.defaults import short
from ...families import family_of
from ...model import Run
from .datasets import MOST_MEGAPIXELS, TRAINED, kind_of, minimum, references
from .options import Options

_OBEYED = frozenset(
    (
        *("id", "type", "dataset_type", "instance_data_dir", "instance_data_root", "caption_strategy", "resolution"),
        *("resolution_type", "repeats", "caption_dropout_probability", "crop", "crop_aspect", "crop_style"),
        *("disabled", "disable", "instance_prompt", "is_regularisation_data", "is_regularization_data"),
        *("metadata_backend", "cache_dir_vae", "cache_dir", "text_embeds", "image_embeds"),
        *("vae_cache_clear_each_epoch", "write_batch_size", "preserve_data_backend_cache", "skip_file_discovery"),
        *("disable_validation", "hash_filenames", "cache_file_suffix", "shorten_filenames", "vae_cache_ondemand"),
        *("minimum_image_size", "maximum_image_size", "target_downsample_size", "only_instance_prompt"),
        "conditioning_data",
    )
)
# Of a reference dataset sizes and crops are its source's, and with one reference its captions are not looked at.
_OF_REFERENCES = _OBEYED | {"conditioning_type", "source_dataset_id"}
# Caches, and pictures that only an evaluation looks at.
_UNTRAINED = ("text_embeds", "image_embeds", "eval")
_STRATEGIES = ("textfile", "instanceprompt", "filename")
_RESOLUTIONS = ("pixel", "area", "pixel_area")
_STRICT = "reference_strict"


def own_of(run: Run, key: str) -> Options:
    """What one dataset says."""
    prefix = f"{key}/"
    return Options({name[len(prefix) :]: v for name, v in run.settings.items() if name.startswith(prefix)})


def refused_sets(run: Run) -> Iterator[tuple[str, str]]:
    """The key that is at fault, and a sentence about it without its full stop."""
    keys = [key for key in run.settings if key.startswith("datasets/") and key.count("/") == 1]
    entries = {key: own for key in keys if not _is_off(own := own_of(run, key))}
    trained = [dataset.key for dataset in run.recipe.datasets]
    sources = {key: references(key, entries) for key in trained if key in entries}
    for key, own in entries.items():
        kind = kind_of(own)
        if kind == "conditioning":
            yield from _reference(run, key, own, [source for source, others in sources.items() if key in others])
        elif kind in _UNTRAINED:
            continue
        elif key not in trained or kind != TRAINED[0]:
            yield key, f"A dataset of the type {kind} is not supported"
        else:
            yield from _pictures(run, key, own)
            yield from _references(key, own, sources[key], entries)


def _is_off(own: Options) -> bool:
    return own.flag("disabled") or own.flag("disable")


def _pictures(run: Run, key: str, own: Options) -> Iterator[tuple[str, str]]:
    if own.text("type", "local") != "local":
        kind = own.text("type")
        yield (
            f"{key}/type",
            f"A dataset of the type {kind} is not supported; put its pictures in a folder and use local",
        )
        return
    strategy = own.text("caption_strategy", Options(run.settings).text("caption_strategy", "filename"))
    if strategy not in _STRATEGIES:
        known = ", ".join(_STRATEGIES)
        yield f"{key}/caption_strategy", f"caption_strategy {strategy} is not supported; use {known}"
    kind = own.text("resolution_type", Options(run.settings).text("resolution_type", "pixel_area"))
    if kind not in _RESOLUTIONS:
        yield f"{key}/resolution_type", f"resolution_type {kind} is not known; use {', '.join(_RESOLUTIONS)}"
    yield from _too_large(run, key, own)
    if own.flag("crop"):
        if own.text("crop_aspect", "square") != "square":
            yield f"{key}/crop_aspect", f"crop_aspect {own.text('crop_aspect')} is not supported; use square"
        style = own.text("crop_style", "random")
        if style not in ("random", "center", "centre"):
            yield f"{key}/crop_style", f"crop_style {style} is not supported; use center or random"
    yield from _others(key, own, _OBEYED)


def _reference(run: Run, key: str, own: Options, sources: list[str]) -> Iterator[tuple[str, str]]:
    """A dataset of pictures that are edited into others."""
    name, kind = own.text("id", key), own.text("conditioning_type", "none")
    if not family_of(run.recipe.architecture).edits:
        yield key, f"The conditioning dataset {name} is not supported: only Flux Kontext is given images"
    elif kind != _STRICT:
        yield f"{key}/conditioning_type", f"conditioning_type {kind} is not supported; use {_STRICT}"
    elif own.text("type", "local") != "local":
        yield f"{key}/type", f"A conditioning dataset of the type {own.text('type')} is not supported; use local"
    elif not sources:
        yield key, f"No dataset names {name} in its conditioning_data"
    else:
        yield from _others(key, own, _OF_REFERENCES)


def _references(
    key: str, own: Options, found: list[str], entries: Mapping[str, Options]
) -> Iterator[tuple[str, str]]:
    """The conditioning datasets that one of pictures names."""
    if len(found) > 1:
        yield f"{key}/conditioning_data", "Several conditioning datasets for one dataset are not supported; name one"
    written = own.settings.get("conditioning_data")
    named = written.value if written is not None else None
    known = [entries[one].text("id") for one in found]
    for name in named if isinstance(named, list) else [named]:
        if name and str(name) not in known:
            yield f"{key}/conditioning_data", f"conditioning_data names {name}, which is no conditioning dataset here"


def _others(key: str, own: Options, obeyed: frozenset[str]) -> Iterator[tuple[str, str]]:
    for name, value in own.settings.items():
        if "/" not in name and name not in obeyed and value.value not in (None, False, 0, "", [], {}):
            yield f"{key}/{name}", f"{name} {short(value.value)} is not supported; leave it out"


def _too_large(run: Run, key: str, own: Options) -> Iterator[tuple[str, str]]:
    """A least size above which SimpleTuner leaves every picture out."""
    unit, size = minimum(own, Options(run.settings))
    if unit == "pixel" or size <= MOST_MEGAPIXELS:
        return
    if own.raw("minimum_image_size") is None:
        what = f"minimum_image_size {size:g} of the whole run counts megapixels; write one of pixels in the dataset"
        yield "minimum_image_size", what
    else:
        most = f"{MOST_MEGAPIXELS:g}"
        what = f"minimum_image_size asks for {size:g} megapixels; SimpleTuner takes no picture above {most}"
        yield f"{key}/minimum_image_size", what
