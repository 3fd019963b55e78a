"""The datasets of kohya's trainers in the runner's words."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from ...configs.refused import Reason, one_of
from ...configs.written import Written
from ...families import family_of
from ...model import Dataset, Run
from ...model.buckets import Buckets
from ...model.datasets import CaptionDraw
from ...model.record import replace
from ...model.run import repeats_of
from ...model.trainer import Folders
from .read import of_dataset

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".avif")
CELL = 16  # pixels: what sides must be divisible by
_ANY = 1 << 20  # pixels a side, which no picture has
# The settings behind what checks of the runner's datasets point at.
_SOURCES = {"alpha_mask": "alpha_mask", "mask_folder": "conditioning_data_dir"}


def resolution_of(musubi: bool, own: Written) -> tuple[int, int] | None:
    """Width and height; None where nothing that is one is written."""
    value = own.raw("resolution")
    if value is None and musubi:
        return 960, 544
    parts = value if isinstance(value, list) else re.split(r"[,\s]+", str(value).strip())
    sizes = [int(part) for part in parts if re.fullmatch(r"\d{1,6}", str(part).strip())]
    return (sizes[0], sizes[-1]) if len(sizes) == len(parts) and len(sizes) in (1, 2) else None


def refused_sets(run: Run, w: Written) -> Iterator[Reason]:
    recipe, musubi = run.recipe, run.trainer == "musubi-tuner"
    each = [(dataset, of_dataset(run.trainer, dataset.key, w)) for dataset in recipe.datasets]
    whole = w.whole("train_batch_size", default=1)
    sizes = [(own, own.whole("batch_size", default=whole)) for _, own in each]
    other = next((own for own, size in sizes if size != recipe.batch_size), None)
    if other is not None and len({size for _, size in sizes}) > 1:
        yield other.key("batch_size"), "Datasets of different batch_size are not supported"
    for dataset, own in each:
        size = resolution_of(musubi, own)
        if size is None:
            yield own.key("resolution"), "A dataset has no resolution"
        elif any(side % CELL or not side for side in size) and not own.flag("enable_bucket"):
            yield own.key("resolution"), f"The resolution {size[0]} x {size[1]} is no multiple of {CELL} pixels"
        repeats = own.raw("num_repeats", default=w.raw("dataset_repeats"))
        if isinstance(repeats, float) and not repeats.is_integer():
            yield own.key("num_repeats"), f"num_repeats {repeats:g} is not a whole number"
        if own.flag("enable_bucket") and own.whole("bucket_reso_steps", default=64) % CELL:
            yield own.key("bucket_reso_steps"), f"bucket_reso_steps must be a multiple of {CELL}"
        yield from _musubi(run, dataset, own) if musubi else _masks(w, own)


def _musubi(run: Run, dataset: Dataset, own: Written) -> Iterator[Reason]:
    if not own.below(dataset.key).maybe("image_directory"):
        yield dataset.key, "A dataset without an image_directory is not supported"
    if not dataset.caption_extension:
        yield own.key("caption_extension"), "A dataset has no caption_extension"
    family = family_of(run.recipe.architecture)
    if family.edits and not family.edits.at_most and not dataset.controls:
        yield dataset.key, f"{family.title} needs the control_directory of each dataset"
    written = own.raw("control_resolution") if not own.flag("no_resize_control") else None
    known = None if written is None or _control_resolution(own) else str(written)
    yield from one_of(own.key("control_resolution"), "control_resolution", known, (None,), "[1024, 1024]")


def _masks(w: Written, own: Written) -> Iterator[Reason]:
    if own.text("conditioning_data_dir") and not w.flag("masked_loss"):
        yield own.key("conditioning_data_dir"), "conditioning_data_dir counts beside masked_loss only; leave it out"


def with_sets(run: Run, w: Written, folders: Folders) -> Run:
    """The run with datasets as the runner reads them; `keys` says which settings they stand for."""
    made: list[Dataset] = []
    keys = dict(run.keys)
    seen = set[tuple[str, str | None]]()
    for dataset in run.recipe.datasets:
        place = dataset.key.partition("/subsets/")[0], dataset.folder
        if dataset.repeats < 1 or place in seen:  # sd-scripts passes over a second subset of one folder
            continue
        seen.add(place)
        own = of_dataset(run.trainer, dataset.key, w)
        of_set = {name: own.key(source) for name, source in _SOURCES.items()}
        for one in _expanded(_as_trained(run, dataset, own), folders):
            made.append(one)
            keys |= {f"{one.key}/{name}": key for name, key in of_set.items()}
            keys[f"{one.key}/folder_path"] = run.keys.get(f"{dataset.key}/folder_path", dataset.key)
    return replace(run, keys=keys, recipe=replace(run.recipe, datasets=tuple(made)))


def _as_trained(run: Run, dataset: Dataset, own: Written) -> Dataset:
    musubi = run.trainer == "musubi-tuner"
    width, height = resolution_of(musubi, own) or (512, 512)
    of_file = re.match(r"datasets/\d+", dataset.key)  # the numbered folders are one dataset
    alpha, edits = own.flag("alpha_mask"), family_of(run.recipe.architecture).edits
    return replace(
        dataset,
        resolutions=(math.isqrt(width * height),),
        suffixes=SUFFIXES,
        recursive=False,
        first_line=not musubi and not own.flag("enable_wildcard"),
        captionless=not musubi,
        controls=(),
        control_folders=dataset.controls if edits else (),
        control_buckets=_control_buckets(own) if edits and musubi else None,
        numbered_controls=edits is not None and edits.most > 1,
        buckets=buckets_of(run.trainer, own, width, height),
        random_crop=own.flag("random_crop"),
        alpha_mask=alpha,
        mask_folder=None if alpha else own.text("conditioning_data_dir") or None,
        drawn=None if musubi else _drawn(own),
        batches_of=of_file[0] if of_file else "",
    )


def _control_resolution(own: Written) -> tuple[int, int] | None:
    value = own.raw("control_resolution")
    sides = value if isinstance(value, list) else [value]
    if len(sides) not in (1, 2) or not all(isinstance(side, int) and side >= CELL for side in sides):
        return None
    return sides[0], sides[-1]


def _control_buckets(own: Written) -> Buckets:
    """The size of control images: that of the picture, their own in whole cells, or about so many pixels."""
    if own.flag("no_resize_control"):
        return Buckets(_ANY, _ANY, kind="musubi-tuner", shrink_only=True, resampling="area")
    if (sides := _control_resolution(own)) is not None:
        return Buckets(*sides, kind="musubi-control", resampling="area")
    return Buckets(0, 0, resampling="area")


def _drawn(own: Written) -> CaptionDraw | None:
    shuffle, dropout = own.flag("shuffle_caption"), own.number("caption_tag_dropout_rate")
    wildcards, drawn = own.flag("enable_wildcard"), shuffle or dropout > 0
    draw = CaptionDraw(
        lines=wildcards,
        shuffle=shuffle,
        dropout=dropout,
        keep=max(0, own.whole("keep_tokens")) if drawn else 0,
        before=own.text("caption_prefix"),
        after=own.text("caption_suffix"),
        wildcards=wildcards,
        separator=own.text("caption_separator", default=","),
        secondary=own.text("secondary_separator"),
        keep_separator=own.text("keep_tokens_separator") if drawn else "",
    )
    return None if draw == CaptionDraw(separator=draw.separator) else draw


def buckets_of(trainer: str, own: Written, width: int, height: int) -> Buckets:
    """How a dataset of this resolution brings its pictures to their sizes."""
    is_musubi = trainer == "musubi-tuner"
    if not own.flag("enable_bucket"):
        shrink_only = own.flag("random_crop")
        return Buckets(width, height, shrink_only=shrink_only, resampling="area", cut_first=not is_musubi)
    shrink_only = own.flag("bucket_no_upscale")
    if is_musubi:
        return Buckets(width, height, kind="musubi-tuner", shrink_only=shrink_only, resampling="area")
    return Buckets(
        width,
        height,
        kind="sd-scripts",
        step=own.whole("bucket_reso_steps", default=64),
        least=own.whole("min_bucket_reso", default=256),
        most=own.whole("max_bucket_reso", default=1024),
        shrink_only=shrink_only,
        resampling="area",
        cut_first=True,
    )


def _expanded(dataset: Dataset, folders: Folders) -> list[Dataset]:
    """The dataset, or what it stands for: the numbered folders ("10_a cat") in the folder that it names."""
    names = folders(dataset.folder) if dataset.key.endswith("_data_dir") and dataset.folder else None
    if names is None or dataset.folder is None:
        return [dataset]
    base = dataset.folder.rstrip("/\\")
    return [
        replace(
            dataset,
            key=f"{dataset.key}/{name}",
            folder=f"{base}/{name}",
            repeats=repeats_of(name),
            default_caption="_".join(name.split("_")[1:]),
        )
        for name in names
        if repeats_of(name) > 0
    ]
