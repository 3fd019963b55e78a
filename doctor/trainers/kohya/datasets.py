"""The datasets of kohya's trainers in the runner's words."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from ...configs.refused import Reason
from ...configs.written import Written
from ...families import family_of
from ...model import Dataset, Run
from ...model.buckets import Buckets
from ...model.record import replace
from ...model.run import repeats_of
from ...model.trainer import Folders

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".avif")
CELL = 16  # pixels: what sides must be divisible by
# The settings behind what checks of the runner's datasets point at.
_SOURCES = {"alpha_mask": "alpha_mask", "mask_folder": "conditioning_data_dir"}
_FALLBACKS = {"batch_size": "train_batch_size", "num_repeats": "dataset_repeats"}


class Own:
    """What holds for one dataset: its own settings, then those above it, as the trainer looks for them."""

    def __init__(self, run: Run, dataset: Dataset, w: Written) -> None:
        self.run, self.dataset = run, dataset
        above = re.match(r"(datasets/\d+)/subsets/", dataset.key)
        inside = dataset.key.startswith("datasets/")
        places = [f"{dataset.key}/", *([f"{above[1]}/"] if above else []), "general/"] if inside else []
        self.places = [*places, *([] if run.trainer == "musubi-tuner" else [""])]
        self.options = w

    def names(self, name: str) -> list[str]:
        """The keys at which the trainer looks for a setting, nearest first."""
        return [*(f"{place}{name}" for place in self.places), *filter(None, [_FALLBACKS.get(name)])]

    def key(self, name: str) -> str:
        """The nearest key that is written, else the dataset's own."""
        return next((key for key in self.names(name) if key in self.run.settings), f"{self.dataset.key}/{name}")

    def raw(self, name: str) -> Any:
        return self.options.raw(*self.names(name))

    def flag(self, name: str) -> bool:
        return self.options.flag(*self.names(name))

    def whole(self, name: str, default: int) -> int:
        return self.options.whole(*self.names(name), default=default)

    def text(self, name: str) -> str:
        return self.options.text(*self.names(name))

    def resolution(self) -> tuple[int, int] | None:
        """Width and height; None where nothing that is one is written."""
        value = self.raw("resolution")
        if value is None and self.run.trainer == "musubi-tuner":
            return 960, 544
        parts = value if isinstance(value, list) else re.split(r"[,\s]+", str(value).strip())
        sizes = [int(part) for part in parts if re.fullmatch(r"\d{1,6}", str(part).strip())]
        return (sizes[0], sizes[-1]) if len(sizes) == len(parts) and len(sizes) in (1, 2) else None


def refused_sets(run: Run, w: Written) -> Iterator[Reason]:
    recipe = run.recipe
    sizes = {Own(run, dataset, w).whole("batch_size", default=1) for dataset in recipe.datasets}
    if len(sizes) > 1:
        first = next(
            dataset
            for dataset in recipe.datasets
            if Own(run, dataset, w).whole("batch_size", default=1) != recipe.batch_size
        )
        yield Own(run, first, w).key("batch_size"), "Datasets of different batch_size are not supported"
    for dataset in recipe.datasets:
        own = Own(run, dataset, w)
        size = own.resolution()
        if size is None:
            yield own.key("resolution"), "A dataset has no resolution"
        elif any(side % CELL or not side for side in size) and not own.flag("enable_bucket"):
            yield own.key("resolution"), f"The resolution {size[0]} x {size[1]} is no multiple of {CELL} pixels"
        repeats = own.raw("num_repeats")
        if isinstance(repeats, float) and not repeats.is_integer():
            yield own.key("num_repeats"), f"num_repeats {repeats:g} is not a whole number"
        if own.flag("enable_bucket") and own.whole("bucket_reso_steps", default=64) % CELL:
            yield own.key("bucket_reso_steps"), f"bucket_reso_steps must be a multiple of {CELL}"
        yield from _musubi(run, own) if run.trainer == "musubi-tuner" else _masks(own)


def _musubi(run: Run, own: Own) -> Iterator[Reason]:
    dataset = own.dataset
    if not own.options.maybe(f"{dataset.key}/image_directory"):
        yield dataset.key, "A dataset without an image_directory is not supported"
    if not dataset.caption_extension:
        yield own.key("caption_extension"), "A dataset has no caption_extension"
    if family_of(run.recipe.architecture).edits and not dataset.controls:
        yield dataset.key, "Kontext needs the control_directory of each dataset"


def _masks(own: Own) -> Iterator[Reason]:
    if own.text("conditioning_data_dir") and not own.options.flag("masked_loss"):
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
        own = Own(run, dataset, w)
        of_set = {name: own.key(source) for name, source in _SOURCES.items()}
        for one in _expanded(_as_trained(run, own), folders):
            made.append(one)
            keys |= {f"{one.key}/{name}": key for name, key in of_set.items()}
            keys[f"{one.key}/folder_path"] = run.keys.get(f"{dataset.key}/folder_path", dataset.key)
    return replace(run, keys=keys, recipe=replace(run.recipe, datasets=tuple(made)))


def _as_trained(run: Run, own: Own) -> Dataset:
    width, height = own.resolution() or (512, 512)
    musubi = run.trainer == "musubi-tuner"
    of_file = re.match(r"datasets/\d+", own.dataset.key)  # the numbered folders are one dataset
    alpha = own.flag("alpha_mask")
    return replace(
        own.dataset,
        resolutions=(math.isqrt(width * height),),
        suffixes=SUFFIXES,
        recursive=False,
        first_line=not musubi,
        captionless=not musubi,
        controls=(),
        control_folders=own.dataset.controls if family_of(run.recipe.architecture).edits else (),
        buckets=_buckets(run, own, width, height),
        random_crop=own.flag("random_crop"),
        alpha_mask=alpha,
        mask_folder=None if alpha else own.text("conditioning_data_dir") or None,
        batches_of=of_file[0] if of_file else "",
    )


def _buckets(run: Run, own: Own, width: int, height: int) -> Buckets:
    if not own.flag("enable_bucket"):
        return Buckets(width, height, shrink_only=own.flag("random_crop"))
    shrink_only = own.flag("bucket_no_upscale")
    if run.trainer != "sd-scripts":
        return Buckets(width, height, kind="musubi-tuner", shrink_only=shrink_only)
    return Buckets(
        width,
        height,
        kind="sd-scripts",
        step=own.whole("bucket_reso_steps", default=64),
        least=own.whole("min_bucket_reso", default=256),
        most=own.whole("max_bucket_reso", default=1024),
        shrink_only=shrink_only,
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
