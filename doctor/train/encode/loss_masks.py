"""A mask says how much each region of an image counts in the loss; it comes from a file or the image's alpha."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...files import fingerprints
from ..dataset.images import check_unchanged, has_alpha, open_image
from ..dataset.pixels import crop_image
from ..dataset.training_items import LossMask, TrainingItem
from ..runtime.train_error import TrainError
from .encoding_cache import EncodingCache

if TYPE_CHECKING:
    from PIL.Image import Image

# Width by height of a mask and of its picture may differ by this much, as rounding does.
STRETCH = 1.05


@dataclass
class LossMasks:
    """The masks of items in cells of the latent, each made once, then read from the cache."""

    cache: EncodingCache
    cell: int  # pixels per side

    def get(self, item: TrainingItem) -> Tensor:
        """Returns 1 x h x w, float32, from the dataset's mask_min_value to 1; ones for an item without a mask."""
        if item.mask is None:
            return torch.ones(1, item.height // self.cell, item.width // self.cell)
        return self.cache.get(self._key(item, item.mask))["mask"]

    def prepare(self, items: Sequence[TrainingItem], note: Callable[[str], None]) -> None:
        """Makes the masks that the cache lacks. Raises TrainError for a mask that cannot be used."""
        masked = {item.picture.file: item for item in items if item.mask is not None}
        bare = {item.picture.file for item in items if item.masked and item.mask is None}
        if bare:
            pictures = len(bare) + len(masked)
            note(f"{len(bare)} of {pictures} pictures have no mask, first {min(bare)}: all of each counts.")
        for item in items:
            if item.mask is not None and not self.cache.has(key := self._key(item, item.mask)):
                made = self._made(item, item.mask)
                check_unchanged(item.mask.file, item.mask.digest)
                self.cache.put(key, {"mask": made})

    def _made(self, item: TrainingItem, mask: LossMask) -> Tensor:
        from PIL import Image, ImageChops

        image = _gray(mask)
        shape, wanted = image.width / image.height, item.picture.width / item.picture.height
        if not 1 / STRETCH <= shape / wanted <= STRETCH:
            raise TrainError(
                f"The mask {mask.file} is {image.width} x {image.height}, but its picture {item.picture.file} is "
                f"{item.picture.width} x {item.picture.height}. Give the mask the shape of the picture."
            )
        if mask.inverted:
            image = ImageChops.invert(image)
        cells = item.width // self.cell, item.height // self.cell
        small = crop_image(image, item).resize(cells, Image.Resampling.BOX)
        share = torch.frombuffer(bytearray(small.tobytes()), dtype=torch.uint8).float() / 255.0
        value = mask.least + (1.0 - mask.least) * share.reshape(1, cells[1], cells[0])
        if value.max() <= 0:
            raise TrainError(
                f"The mask {mask.file} is black all over{' when inverted' if mask.inverted else ''}, so nothing of "
                f"{item.picture.file} would be learnt. White is what counts; invert_mask turns it round."
            )
        return value

    def _key(self, item: TrainingItem, mask: LossMask) -> str:
        words = f"{mask.digest} {mask.alpha} {mask.inverted} {mask.least} {item.crop} {self.cell}"
        return "mask-" + fingerprints.of_texts(words, length=32)


def _gray(mask: LossMask) -> Image:
    image = open_image(mask.file)
    if not mask.alpha:
        return image.convert("L")
    if not has_alpha(image):
        raise TrainError(
            f"alpha_mask is set, but {mask.file} has no alpha channel. Save it with one, or use mask_path."
        )
    return image.convert("RGBA").getchannel("A")


def with_mean_one(masks: Sequence[Tensor]) -> Tensor:
    """Returns the masks of a batch, b x 1 x h x w, with a mean of 1."""
    value = torch.stack(list(masks))
    return value / value.mean()
