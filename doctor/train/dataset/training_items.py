"""A training item is an image with a caption, cut to a size.

Everything here is a pure function of the folders and the seed, so a resumed run sees the same batches.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...families import family_of
from ...families.record import Edits
from ...files import fingerprints
from ...model.buckets import Buckets, Resampling, bucket_size, scaled_size
from ...model.datasets import CaptionDraw, Dataset
from ...model.recipe import Recipe
from ..runtime.train_error import TrainError
from .captions import DrawnCaption, drawn_caption, with_trigger
from .images import (
    SUFFIXES,
    DatasetImage,
    is_opaque,
    large_enough_images,
    read_images,
    with_control_images,
)

# Sides of what musubi-tuner shows the text encoder, of any Qwen-Image-Edit.
_SEEN_BY_MUSUBI = 384


@dataclass(frozen=True)
class LossMask:
    """The mask of an image weighs its loss: the gray values (or the alpha) of a file, `least` where it is black."""

    file: Path
    digest: str
    alpha: bool
    inverted: bool
    least: float


@dataclass(frozen=True)
class SeenImage:
    """A control image as the text encoder looks at it: stretched to this size, or with `cut` cut to its shape."""

    item: TrainingItem
    width: int
    height: int
    cut: bool = False


@dataclass(frozen=True)
class TrainingItem:
    """One image, resized and cropped to width x height pixels, maybe mirrored, with its caption.

    `scaled` is the size that the picture is scaled to by `resampling` before it is cropped, None where that just
    covers width x height; with `cut_first` it is mirrored after that.
    `caption` has the trigger word in it; `dropout` is the chance that `dropped` is used instead. `place` is where in
    what the resized picture is too large the crop lies, from (0, 0) to (1, 1); None is the middle. `weight` is what
    its loss is multiplied by. A `regular` item keeps the model as it is and has steps of its own; the target of a
    `prior` one is the answer of the model without the network. `trigger` is the word for what is learnt. An item of
    a `masked` dataset that has no mask of its own counts as a whole. Items that are kept `apart` are in no batch with
    others. `drawn` is how its caption is made anew each time it is used.
    `edits` says how its control images are given; `matched` gives them as many pixels as itself, and where there are
    `control_buckets` these say their size.
    """

    picture: DatasetImage
    width: int
    height: int
    caption: str
    dropped: str
    dropout: float
    flip_x: bool = False
    flip_y: bool = False
    place: tuple[float, float] | None = None
    scaled: tuple[int, int] | None = None
    resampling: Resampling = "bicubic"
    cut_first: bool = False
    weight: float = 1.0
    regular: bool = False
    prior: bool = False
    trigger: str = ""
    drawn: DrawnCaption | None = None
    masked: bool = False
    mask: LossMask | None = None
    apart: str = ""
    edits: Edits | None = None
    matched: bool = False
    control_buckets: Buckets | None = None

    @property
    def controls(self) -> tuple[TrainingItem, ...]:
        """The control images of this item, cut and mirrored as it or each whole in its own shape."""
        if (how := self.control_buckets) is not None:
            own = how if how.width else how._replace(width=self.width, height=self.height)
            return tuple(in_bucket(one, own) for one in self.picture.controls)
        if self.edits is None or not self.edits.pixels:
            return tuple(replace(self, picture=one) for one in self.picture.controls)
        if self.edits.at_most and not self.matched:
            return tuple(at_most(one, self.edits.pixels) for one in self.picture.controls)
        pixels = self.width * self.height if self.matched else self.edits.pixels
        return tuple(in_pixels(one, pixels) for one in self.picture.controls)

    @property
    def seen(self) -> tuple[SeenImage, ...]:
        """What the text encoder looks at while it reads a prompt of this item."""
        if self.edits is None or not self.edits.seen:
            return ()
        if self.control_buckets is not None:  # musubi-tuner shows them as they were cut
            how = Buckets(_SEEN_BY_MUSUBI, _SEEN_BY_MUSUBI, "musubi-control")
            return tuple(
                SeenImage(one, *bucket_size(how, one.width, one.height), cut=True)
                for one in (self.controls if self.edits.most > 1 else self.controls[:1])
            )
        whole = (in_pixels(one, 0) for one in self.picture.controls)
        shown = whole if self.edits.pixels else self.controls
        return tuple(SeenImage(one, *sides_of(self.edits.seen, one.width / one.height)) for one in shown)

    @property
    def told_sizes(self) -> tuple[int, ...]:
        """Height and width of the whole picture, where its crop begins, height and width of that, as sd-scripts tells
        them (get_crop_ltrb of library/train_util.py in 48d368fa): where the picture would begin in its bucket.
        """
        shape = self.picture.width / self.picture.height
        wide, high = float(self.width), self.width / shape
        if self.width / self.height > shape:
            wide, high = self.height * shape, float(self.height)
        left, top = (self.width - wide) // 2, (self.height - high) // 2
        left = self.width - (left + wide) if self.flip_x else left
        return self.picture.height, self.picture.width, int(top), int(left), self.height, self.width

    @property
    def written(self) -> str:
        """The caption before anything is drawn of it."""
        return (self.drawn and self.drawn.written) or self.caption

    def caption_at(self, seed: int, index: int, place: int) -> str:
        """Its caption at its place in batch `index`."""
        return (
            self.caption
            if self.drawn is None
            else drawn_caption(self.drawn, random.Random(f"{seed} {index} {place}"))
        )

    @property
    def crop(self) -> str:
        """The size, the mirroring, the place of the crop and the filter in one word, by which caches know it."""
        place = "" if self.place is None else f"@{self.place[0]:.4f},{self.place[1]:.4f}"
        place += "" if self.scaled is None else f"<{self.scaled[0]}x{self.scaled[1]}"
        mirrored = f"{'x' if self.flip_x else ''}{'y' if self.flip_y else ''}{'>' if self.cut_first else ''}"
        return f"{self.width}x{self.height}{mirrored}{place} {self.resampling}"


def sides_of(pixels: int, ratio: float) -> tuple[int, int]:
    """Width and height of about so many pixels, in steps of 32, as Qwen-Image's pipelines have them."""
    width = math.sqrt(pixels * ratio)
    return round(width / 32) * 32, round(width / ratio / 32) * 32


def in_pixels(picture: DatasetImage, pixels: int) -> TrainingItem:
    """A control image in about so many pixels and its own shape; 0: as it is."""
    size = sides_of(pixels, picture.width / picture.height) if pixels else (picture.width, picture.height)
    return TrainingItem(picture, *size, "", "", 0.0, scaled=size, resampling="lanczos")


def in_bucket(picture: DatasetImage, how: Buckets) -> TrainingItem:
    """A control image in a size of a trainer's own: cut out of the middle where its shape is another."""
    size = bucket_size(how, picture.width, picture.height)
    scaled = scaled_size(how._replace(width=size[0], height=size[1], kind="one"), picture.width, picture.height)
    return TrainingItem(picture, *size, "", "", 0.0, scaled=scaled, resampling=how.resampling)


def at_most(picture: DatasetImage, pixels: int) -> TrainingItem:
    """A control image in its own size, made smaller where it has more pixels; cut to steps of 16, as of FLUX.2."""
    share = min(1.0, math.sqrt(pixels / (picture.width * picture.height)))
    width, height = (max(16, int(side * share) // 16 * 16) for side in (picture.width, picture.height))
    return TrainingItem(picture, width, height, "", "", 0.0, resampling="lanczos")


def read_training_items(
    recipe: Recipe,
    folders: Mapping[str, str],
    divisor: int,
    known: dict[str, tuple[int, int]] | None = None,
    skip: Callable[[str], None] | None = None,
    tell: Callable[[str], None] | None = None,
) -> list[TrainingItem]:
    """Returns all items of all datasets in a fixed order.

    With `skip` pictures that cannot be read are left out, and it is told which. `tell` is told of those that are too
    small for their dataset. `known` holds the shown size of pictures that were decoded before, by the sha256 of their
    bytes; new ones are decoded and added to it. Raises TrainError for empty folders, bad images, bad captions.
    """
    known = {} if known is None else known
    edits = family_of(recipe.architecture).edits
    items: list[TrainingItem] = []
    for dataset in recipe.datasets:
        place = Path(folders[dataset.key])
        pictures = large_enough_images(read_images(place, dataset, known, skip), place, dataset, tell)
        own_shape = dataset.control_buckets is not None or (edits is not None and edits.pixels > 0)
        pictures = with_control_images(pictures, dataset, known, skip, stretched=not own_shape)
        flips = [(x, y) for y in (False, True)[: 1 + dataset.flip_y] for x in (False, True)[: 1 + dataset.flip_x]]
        for resolution in dataset.resolutions or (512,):
            for flip_x, flip_y in flips:
                for picture in pictures:
                    item = replace(_item(recipe, dataset, picture, resolution, divisor), flip_x=flip_x, flip_y=flip_y)
                    for copy in range(max(1, dataset.repeats)):
                        crop = _place(picture, item, copy) if dataset.random_crop else None
                        items.append(replace(item, place=crop))
    if not items:
        raise TrainError("The run has no dataset, so there is nothing to train on.")
    return items


def uncaptioned(items: Sequence[TrainingItem]) -> str:
    """Returns what to say of images that are trained with an empty prompt because nobody wrote one, else ""."""
    captions = {item.picture.file: item.caption for item in items if not item.regular and item.dropout < 1}
    bare = sorted(file for file, caption in captions.items() if not caption.strip())
    if not bare:
        return ""
    some = f"{len(bare)} of {len(captions)} pictures have no caption (first {bare[0].name})"
    count = "No picture has a caption" if len(bare) == len(captions) else some
    return f"{count}, no default_caption and no trigger word: an empty prompt is trained."


def _item(recipe: Recipe, dataset: Dataset, picture: DatasetImage, resolution: int, divisor: int) -> TrainingItem:
    own = recipe.trigger_word if dataset.trigger_word is None else dataset.trigger_word
    regular = dataset.is_regularisation
    literal = recipe.literal_captions
    # ai-toolkit puts in the run's word too, but not to the cache; other trainers know no [trigger]
    triggers = () if literal else (own,) if recipe.cache_text_embeddings else (own, recipe.trigger_word)
    drawn = dataset.drawn
    if drawn == CaptionDraw(lines=True) and "\n" not in picture.caption:
        drawn = None  # there is but one
    caption = picture.caption.partition("\n")[0].strip() if drawn and drawn.lines else picture.caption
    for word in triggers:
        caption = with_trigger(caption, word, add=not regular)
    made_anew = DrawnCaption(picture.caption, drawn, triggers, leading=not regular) if drawn else None
    how = dataset.buckets_at(resolution, divisor)
    width, height = bucket_size(how, picture.width, picture.height)
    item = TrainingItem(
        picture,
        width,
        height,
        caption,
        with_trigger("", own if recipe.cache_text_embeddings else recipe.trigger_word, add=not regular),
        dataset.caption_dropout,
        scaled=scaled_size(how, picture.width, picture.height),
        resampling=how.resampling,
        cut_first=how.cut_first,
        weight=dataset.loss_multiplier,
        regular=regular,
        prior=dataset.prior_reg,
        trigger=own or "",
        drawn=made_anew,
        masked=dataset.alpha_mask or bool(dataset.mask_folder),
        mask=_mask(recipe, dataset, picture),
        apart=f"{dataset.batches_of} {resolution}",
        edits=family_of(recipe.architecture).edits,
        matched=recipe.controls_match,
        control_buckets=dataset.control_buckets,
    )
    if made_anew and drawn and (drawn.wildcards or drawn.before or drawn.after or drawn.secondary):
        return replace(item, caption=drawn_caption(made_anew, random.Random(picture.digest)))
    return item


def _mask(recipe: Recipe, dataset: Dataset, picture: DatasetImage) -> LossMask | None:
    how = dataset.invert_mask, dataset.mask_min_value
    if dataset.alpha_mask:
        is_whole = not recipe.loss.balanced_masks and is_opaque(picture.file)  # as in sd-scripts
        return None if is_whole else LossMask(picture.file, picture.digest, True, *how)
    if not dataset.mask_folder:
        return None
    folder = Path(dataset.mask_folder)
    if not folder.is_dir():
        raise TrainError(f"The folder of masks {folder} does not exist or is not a folder.")
    names = (folder / f"{picture.file.stem}{suffix}" for suffix in SUFFIXES)
    file = next((path for path in names if path.is_file()), None)
    return None if file is None else LossMask(file, fingerprints.of_file(file), False, *how)


def _place(picture: DatasetImage, item: TrainingItem, copy: int) -> tuple[float, float]:
    """Where a random crop lies: another for each repeat and size, but the same at every start of the run."""
    draw = random.Random(f"{picture.digest} {item.crop} {copy}")
    return draw.random(), draw.random()


def hold_out(
    items: Sequence[TrainingItem], count: int, before: Sequence[str] = ()
) -> tuple[list[TrainingItem], list[TrainingItem]]:
    """Returns what is trained on, and one item of each of the `count` images that are held out for validation.

    No step trains on these in any crop or repetition.

    Which pictures follows from their contents alone. Of a run that goes on they are those of `before`, by the sha256
    of their bytes, as far as they are still there: any other was trained on. Raises TrainError when none would be
    left to train on.
    """
    digests = sorted({item.picture.digest for item in items if not item.regular})
    if count >= len(digests):
        raise TrainError(
            f"--eval {count} would hold out every picture: the datasets have {len(digests)} different ones. "
            f"Hold out at most {len(digests) - 1}."
        )
    chosen = [digest for digest in before if digest in digests] if before else digests[:count]
    kept = [item for item in items if item.picture.digest not in chosen]
    held = {item.picture.digest: item for item in reversed(items)}
    return kept, [held[digest] for digest in chosen]
