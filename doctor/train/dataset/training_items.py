"""A training item is an image with a caption, cut to a size; batches are made of items.

Everything here is a pure function of the folders and the seed, so a resumed run sees the same batches.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...families import family_of
from ...families.record import Edits
from ...files import fingerprints
from ...model.buckets import Resampling, bucket_size, scaled_size
from ...model.datasets import CaptionDraw, Dataset
from ...model.recipe import Recipe
from ..runtime.train_error import TrainError
from .images import (
    SUFFIXES,
    DatasetImage,
    is_opaque,
    large_enough_images,
    open_image,
    read_images,
    with_control_images,
)
from .scaling import scaled_image

if TYPE_CHECKING:
    from PIL.Image import Image

TRIGGER_PLACES = ("[trigger]", "[name]")


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
    """A control image as the text encoder looks at it, in this size."""

    item: TrainingItem
    width: int
    height: int

    def pixels(self) -> Image:
        """Raises TrainError."""
        return scaled_image(load_pixels(self.item), (self.width, self.height), "lanczos")


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
    others. A caption that is `drawn` anew each time is made of `raw`, with the `triggers` of its dataset and its run.
    `edits` says how its control images are given; `matched` gives them as many pixels as itself.
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
    raw: str = ""
    drawn: CaptionDraw | None = None
    triggers: tuple[str | None, ...] = ()
    masked: bool = False
    mask: LossMask | None = None
    apart: str = ""
    edits: Edits | None = None
    matched: bool = False

    @property
    def controls(self) -> tuple[TrainingItem, ...]:
        """The control images of this item, cut and mirrored as it or each whole in its own shape."""
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
        own_shape = edits is not None and edits.pixels > 0
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
        raw=picture.caption if drawn else "",
        drawn=drawn,
        triggers=triggers if drawn else (),
        masked=dataset.alpha_mask or bool(dataset.mask_folder),
        mask=_mask(recipe, dataset, picture),
        apart=f"{dataset.batches_of} {resolution}",
        edits=family_of(recipe.architecture).edits,
        matched=recipe.controls_match,
    )
    if drawn is None or not (drawn.wildcards or drawn.before or drawn.after or drawn.secondary):
        return item
    return replace(item, caption=drawn_caption(item, random.Random(picture.digest)))


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


def with_trigger(caption: str, trigger: str | None, add: bool = True) -> str:
    """Puts the trigger word where [trigger] stands; if `add`, in front of a caption without it. Blanks stay."""
    word = trigger or ""
    for place in TRIGGER_PLACES:
        caption = caption.replace(place, word)
    return f"{word} {caption}" if word.strip() and add and word not in caption else caption


def caption_at(item: TrainingItem, seed: int, index: int, place: int) -> str:
    """Returns the caption of an item at its place in batch `index`."""
    return item.caption if item.drawn is None else drawn_caption(item, random.Random(f"{seed} {index} {place}"))


def drawn_caption(item: TrainingItem, draw: random.Random) -> str:
    """Returns a caption that is made anew, by the same draws in the same order as the trainer's."""
    how, text = item.drawn or CaptionDraw(), item.raw
    text = f"{how.before} {text}" if how.before else text
    text = f"{text} {how.after}" if how.after else text
    if how.lines and (how.wildcards is False or "\n" in text):
        text = draw.choice([line for part in text.split("\n") if (line := part.strip())] or [""])
    if how.wildcards:
        text = _without_wildcards(text, draw)
    if how.whole:
        tags = text.replace(", ", ",").split(",")  # as they were before they were read
        if how.dropout:
            rest = [tag for tag in tags[how.keep :] if how.dropout < 1 and draw.random() > how.dropout]
            tags = [*tags[: how.keep], *rest]
        text = ", ".join(_shuffled(tags, draw) if how.shuffle else tags)
    elif how.shuffle or how.dropout:
        first, rest, last = _kept_apart(text, how)
        rest = _shuffled(rest, draw) if how.shuffle else rest
        rest = [tag for tag in rest if not how.dropout or draw.random() >= how.dropout]
        text = ", ".join([*first, *rest, *last])
    if how.secondary:
        text = text.replace(how.secondary, how.separator)
    for number, word in enumerate(item.triggers):
        text = with_trigger(text, word, add=not item.regular)
        if how.whole and how.shuffle and number == 0:
            text = ", ".join(_shuffled(text.split(","), draw))
    return text


def _without_wildcards(text: str, draw: random.Random) -> str:
    """The text with one word of each {…|…}; {{ and }} stand for braces."""
    opened, closed = "\ue000", "\ue001"  # characters for private use
    text = text.replace("{{", opened).replace("}}", closed)
    text = re.sub(r"\{([^}]+)\}", lambda found: draw.choice(found[1].split("|")), text)
    return text.replace(opened, "{").replace(closed, "}")


def _kept_apart(text: str, how: CaptionDraw) -> tuple[list[str], list[str], list[str]]:
    """The tags that stay at the beginning, those that are drawn, and those that stay at the end."""
    if how.keep_separator and how.keep_separator in text:
        first, rest, *last = text.split(how.keep_separator, 2)
        parts = (first, rest, "".join(last))
        first_tags, others, last_tags = ([t for tag in p.split(how.separator) if (t := tag.strip())] for p in parts)
        return first_tags, others, last_tags
    tags = [tag.strip() for tag in text.strip().split(how.separator)]
    return tags[: how.keep], tags[how.keep :], []


def _shuffled(tags: list[str], draw: random.Random) -> list[str]:
    draw.shuffle(tags)
    return tags


def epoch_batches(items: Sequence[TrainingItem], size: int, seed: int, epoch: int) -> list[list[int]]:
    """Returns the batches of one epoch as indices into `items`: shuffled, one image size a batch, every item in one.

    A batch that a size cannot fill is filled up with its own items again. Those with other control images are kept
    apart, and `prior` ones from others: a batch has one kind of input and of target.
    """
    order = random.Random(f"{seed} {epoch}")
    by_size: dict[tuple[object, ...], list[int]] = {}
    for index, item in enumerate(items):
        sizes = tuple((one.width, one.height) for one in item.controls)
        by_size.setdefault((item.width, item.height, sizes, item.prior, item.apart), []).append(index)
    result: list[list[int]] = []
    for indices in by_size.values():
        order.shuffle(indices)
        for start in range(0, len(indices), size):
            batch = indices[start : start + size]
            result.append([batch[i % len(batch)] for i in range(size)])
    order.shuffle(result)
    return result


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


def load_pixels(item: TrainingItem) -> Image:
    """Returns the image as RGB, resized to cover width x height and cropped. Raises TrainError."""
    from PIL import Image

    image = open_image(item.picture.file)
    if item.picture.is_control and image.mode in ("RGBA", "LA"):
        image = Image.alpha_composite(Image.new("RGBA", image.size, "black"), image.convert("RGBA"))
    if image.mode.startswith("I;16"):  # Pillow would make every gray above 255 white
        image = image.convert("I").point(lambda gray: gray * (1 / 257) + 0).convert("L")
    return crop_image(image.convert("RGB"), item)


def crop_image(image: Image, item: TrainingItem) -> Image:
    """Scales, crops and mirrors an image, or its mask, as the item asks."""
    width, height = item.picture.width, item.picture.height
    scale = max(item.width / width, item.height / height)
    size = item.scaled or (max(item.width, int(width * scale + 0.5)), max(item.height, int(height * scale + 0.5)))
    if not item.cut_first:
        image = _mirrored(image, item)
    if size != image.size:
        image = scaled_image(image, size, item.resampling)
    spare = size[0] - item.width, size[1] - item.height
    left, top = spare[0] // 2, spare[1] // 2
    if item.place is not None:
        left, top = int((spare[0] + 1) * item.place[0]), int((spare[1] + 1) * item.place[1])
    image = image.crop((left, top, left + item.width, top + item.height))
    return _mirrored(image, item) if item.cut_first else image


def _mirrored(image: Image, item: TrainingItem) -> Image:
    from PIL import ImageOps

    if item.flip_x:
        image = ImageOps.mirror(image)
    return ImageOps.flip(image) if item.flip_y else image
