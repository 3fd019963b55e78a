"""A dataset as a run asks for it, and what its folder holds: pictures, their captions, and what is neither."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from .buckets import Buckets
from .record import dataclass, field

FORBIDDEN = "may not be read by this user"


@dataclass(frozen=True)
class CaptionDraw:
    """How a caption is made anew each time its picture is trained on: by one of its `lines`, and by its tags.

    Tags stand between commas. The first `keep` of them stay; of the others each is left out with the chance
    `dropout`. With `shuffle` their order is drawn: of all of them where `whole`, as in ai-toolkit, which leaves their
    blanks as they are and draws once more behind the trigger word; else of those behind the kept ones.

    What else sd-scripts has: `before` and `after` it a text each, one of the words of each "{red|blue}" with
    `wildcards`, another `separator` of tags than the comma, a `secondary` one that becomes such a separator at last,
    and one behind which tags are no longer kept (`keep_separator`; behind its second they are kept again).
    """

    lines: bool = False
    shuffle: bool = False
    dropout: float = 0.0
    keep: int = 0
    whole: bool = False
    before: str = ""
    after: str = ""
    wildcards: bool = False
    separator: str = ","
    secondary: str = ""
    keep_separator: str = ""


@dataclass(frozen=True)
class Dataset:
    """One dataset of a run. `key` is the settings prefix, e.g. "datasets/0".

    `captions` says whether a picture is described by the file beside it, by its own name, or by `default_caption`.
    `suffixes` are those of its pictures, `recursive` says whether these may lie in folders inside, `first_line`
    whether no other line of a caption counts, `captionless` whether a picture without a caption file is taken. With
    `keeps_blanks` the white space around a caption stays, and each comma gets a blank behind it.
    Pictures with a side below `least_side` or fewer pixels than `least_area` are left out.
    `buckets` says to which sizes pictures are brought, None: as ai-toolkit does it by `resolutions`, in steps of
    `bucket_step` pixels; with `random_crop` each repeat has a place of its own. A mask weighs the loss: the
    picture's alpha channel, or the file of its name in `mask_folder`. `batches_of` names the datasets that share
    batches. A control image is brought to `control_buckets` (0 x 0: to the size of its picture), None: as the model's
    pipeline does it; with `numbered_controls` a picture has all that begin with its name ("cat.png", "cat_1.png").
    Above 1 `frames` are those of the films that are in it in place of pictures; 0: it is
    not known how many.
    """

    key: str
    folder: str | None
    caption_extension: str
    resolutions: tuple[int, ...]
    default_caption: str = ""
    caption_dropout: float = 0.0
    repeats: int = 1
    cache_latents_to_disk: bool = False
    cache_latents: bool = False
    flip_x: bool = False
    flip_y: bool = False
    controls: tuple[str, ...] = ()
    control_folders: tuple[str, ...] = ()
    control_buckets: Buckets | None = None
    numbered_controls: bool = False
    is_regularisation: bool = False
    captions: Literal["files", "names", "default"] = "files"
    suffixes: tuple[str, ...] = (".jpg", ".jpeg", ".png", ".webp")
    recursive: bool = True
    first_line: bool = False
    captionless: bool = True
    keeps_blanks: bool = False
    least_side: float = 0.0
    least_area: float = 0.0
    buckets: Buckets | None = None
    bucket_step: int = 16
    square_crop: bool = False
    random_crop: bool = False
    alpha_mask: bool = False
    mask_folder: str | None = None
    invert_mask: bool = False
    mask_min_value: float = 0.0
    trigger_word: str | None = None
    loss_multiplier: float = 1.0
    prior_reg: bool = False
    varied_captions: bool = False
    drawn: CaptionDraw | None = None
    batches_of: str = ""
    frames: int = 1

    def takes(self, width: int, height: int) -> bool:
        """Whether a picture of this size in pixels is large enough."""
        return min(width, height) >= self.least_side and width * height >= self.least_area

    def buckets_at(self, resolution: int, step: int = 1) -> Buckets:
        """How its pictures are sized at one of its resolutions, in sides that `step` divides, too."""
        if self.buckets is not None:
            return self.buckets
        step = math.lcm(step, self.bucket_step)
        if self.square_crop:
            side = max(step, resolution // step * step)
            return Buckets(side, side)
        return Buckets(resolution, resolution, "ai-toolkit", step)


@dataclass(frozen=True)
class Image:
    path: str
    width: int
    height: int
    caption: bool


@dataclass(frozen=True)
class Garbled:
    """A caption that is not UTF-8: the first byte that is none, at `position`, in line `line`.

    `encoding` is the one that it is surely in (by its byte-order mark) or may be in, "" when it cannot be told;
    `text` is it in that encoding.
    """

    path: str
    byte: int
    position: int
    line: int
    encoding: str = ""
    text: str = ""


@dataclass(frozen=True)
class DatasetFolder:
    """What a dataset folder holds, as the trainer walks it.

    `unreadable` are image files that cannot be decoded, with the reason; `more` counts images that were not looked
    into. `others` counts the files of other kinds by extension, captions left out; `unlisted` the folders inside that
    could not be listed, `captions` the files beside pictures that may be their captions, by extension. `blank` counts
    the captions with nothing in them; `garbled` are those that are not UTF-8. `is_file`: a file stands in its place,
    and it is no JSON list of pictures. `denied`: this user may not list the folder itself.
    """

    key: str
    path: str
    images: tuple[Image, ...]
    unreadable: Mapping[str, str] = field(default_factory=dict)
    more: int = 0
    others: Mapping[str, int] = field(default_factory=dict)
    unlisted: int = 0
    captions: Mapping[str, int] = field(default_factory=dict)
    blank: int = 0
    garbled: tuple[Garbled, ...] = ()
    is_file: bool = False
    denied: bool = False

    @property
    def forbidden(self) -> bool:
        """Whether this user may read nothing of it: not the folder, or none of its pictures."""
        return self.denied or (
            bool(self.unreadable)
            and not self.images
            and not self.more
            and all(why == FORBIDDEN for why in self.unreadable.values())
        )
