"""SimpleTuner's file of datasets: those that pictures are trained on, and what of them the runner refuses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import floor, sqrt
from typing import Literal

from ...configs.refused import Reason, one_of
from ...configs.written import Written
from ...families import family_of
from ...model import Config, Dataset, Run, Value
from ...model.buckets import Buckets, nearest
from ...model.datasets import CaptionDraw

TRAINED = ("image", "video")
# With more megapixels as minimum_image_size the trainer leaves every picture out, with an error for each.
MOST_MEGAPIXELS = 5.0
# Sides of square pictures of these megapixels, give or take 0.05 (training_sample.py _set_resolution).
_ROUND = ((0.25, 512), (0.5, 768), (1.0, 1024), (2.0, 1536), (4.0, 2048))
_MOST = 1e5  # pixels; what is larger is no size of a picture
_CELL = 16  # pixels: the models take no other sides
Captions = Literal["files", "names", "default"]
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


def datasets(options: Written) -> tuple[Dataset, ...]:
    """Those that are trained on; what holds caches, conditions or evaluation pictures is left out."""
    entries = entries_of(options)
    return tuple(
        _dataset(key, options, tuple(folder_of(entries[one], options) for one in references(key, entries)))
        for key, own in entries.items()
        if kind_of(own) in TRAINED
    )


def entries_of(options: Written) -> dict[str, Written]:
    """What each dataset says; one that is switched off says no more."""
    keys = [key for key in options.settings if key.startswith("datasets/") and key.count("/") == 1]
    found = {key: options.below(key) for key in keys}
    off = {key for key, own in found.items() if own.flag("disabled") or own.flag("disable")}
    options.raw(*off)
    return {key: own for key, own in found.items() if key not in off}


def kind_of(own: Written) -> str:
    """What a dataset holds. One with a conditioning_type is no other than conditioning."""
    kind = own.text("dataset_type", default="image").lower()
    return "conditioning" if own.text("conditioning_type") else kind


def references(key: str, entries: Mapping[str, Written]) -> list[str]:
    """The conditioning datasets whose pictures are edited into those of this dataset: either may name the other."""
    own = entries[key]
    named = own.raw("conditioning_data")
    ids = [str(one) for one in (named if isinstance(named, list) else [named])]
    return [
        other
        for other, its in entries.items()
        if kind_of(its) == "conditioning"
        and ((its.text("id") or None) in ids or its.text("source_dataset_id", default="-") == own.text("id"))
    ]


def folder_of(own: Written, options: Written) -> str:
    """The folder as it is written, with what stands for other settings put in."""
    folder = own.text("instance_data_dir") or own.text("instance_data_root")
    for name in ("model_family", "output_dir"):
        folder = folder.replace(f"{{{name}}}", options.text(name))
    return folder.replace("{id}", own.text("id"))


def settings(backend: Config | None) -> dict[str, Value]:
    """Every value of the file, by settings key."""
    return {} if backend is None else {f"datasets{pointer}": value for pointer, value in backend.values.items()}


def unit_of(both: Written) -> str:
    """What sizes of a dataset count, by its options before those of the run."""
    return both.text("resolution_type", default="pixel_area")


def _dataset(key: str, options: Written, controls: tuple[str, ...]) -> Dataset:
    own, both = options.below(key), options.below(key, "")
    strategy = both.text("caption_strategy", default="filename")
    captions: Mapping[str, Captions] = {"textfile": "files", "instanceprompt": "default"}
    cached = not (own.flag("vae_cache_disable") or options.flag("vae_cache_disable"))
    least_side, least_area = _least(key, options)
    return Dataset(
        key=key,
        folder=folder_of(own, options) or None if own.text("type", default="local") == "local" else None,
        caption_extension=".txt",
        captions=captions.get(strategy, "names"),
        drawn=CaptionDraw(lines=True) if strategy == "textfile" and not own.flag("disable_multiline_split") else None,
        resolutions=(_edge(both),),
        default_caption=own.text("instance_prompt") if strategy == "instanceprompt" else "",
        caption_dropout=both.number("caption_dropout_probability", default=0.1),
        repeats=own.whole("repeats") + 1,
        control_folders=tuple(folder for folder in controls if folder),
        cache_latents_to_disk=cached,
        cache_latents=cached,
        is_regularisation=own.flag("is_regularisation_data") or own.flag("is_regularization_data"),
        least_side=least_side,
        least_area=least_area,
        frames=_frames(own, options) if kind_of(own) == "video" else 1,
    )


def _frames(own: Written, options: Written) -> int:
    """Pictures of a film that are trained: those of five seconds where none are written (factory.py)."""
    return max(1, own.whole("video/num_frames", default=5 * options.whole("framerate", default=30)))


def minimum(key: str, options: Written) -> tuple[str, float]:
    """minimum_image_size, 0 where nothing is asked for, and its unit: "pixel" of a side, or "area" in megapixels.

    Of a dataset with the resolution_type pixel_area it is the edge of a square, but only where the dataset itself
    says it: the option of the whole run is not converted (factory.py _handle_resolution_conversion).
    """
    both = options.below(key, "")
    kind, size = unit_of(both), both.number("minimum_image_size")
    if kind == "pixel_area" and size > 0 and options.has(f"{key}/minimum_image_size"):
        size = size * size / 1_000_000
    return "pixel" if kind == "pixel" else "area", size


def _least(key: str, options: Written) -> tuple[float, float]:
    """The least side and the least number of pixels (metadata/backends/base.py meets_resolution_requirements)."""
    own = options.below(key)
    unit, size = minimum(key, options)
    if size <= 0:
        return 0.0, 0.0
    if unit == "pixel":
        return size, 0.0
    square = own.flag("crop") and own.text("crop_aspect", default="square") == "square"
    return float(floor(sqrt(size * 1_000_000))) if square else 0.0, size * 1_000_000


def buckets_of(key: str, options: Written, step: int) -> Buckets:
    """The sizes that pictures are brought to; `step` is the alignment in pixels."""
    both = options.below(key, "")
    size, kind = min(max(0.0, both.number("resolution", default=1024)), _MOST), unit_of(both)
    if kind == "pixel":
        edge = square = max(step, int(size))
    else:
        area = size * size if kind == "pixel_area" else size * 1e6
        edge = nearest(int(sqrt(area)), step)
        round_one = next((side for megapixels, side in _ROUND if abs(area / 1e6 - megapixels) < 0.05), sqrt(area))
        square = nearest(round_one, step)
    square = max(_CELL, square // _CELL * _CELL)
    own = options.below(key)
    return Buckets(
        edge,
        square,
        "simpletuner-pixel" if kind == "pixel" else "simpletuner-area",
        step,
        digits=min(max(0, options.whole("aspect_bucket_rounding", default=2)), 9),
        resampling="linear",
        squared=own.flag("crop") and own.text("crop_aspect", default="square") != "preserve",
    )


def _edge(both: Written) -> int:
    """The edge in pixels of a square picture of the dataset's resolution, which may be given in megapixels."""
    size = both.number("resolution", default=1024)
    if unit_of(both) == "area" and 0 < size < 100:
        return max(1, round(sqrt(size * 1e6)))
    return max(1, int(size) if size < 1e9 else 1)


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
    of_trainer = family_of(run.recipe.architecture).simpletuner
    if not family_of(run.recipe.architecture).edits or (of_trainer is not None and of_trainer.in_cells):
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
