"""The pixels of a training item: scaled, cropped and mirrored as it asks."""

from __future__ import annotations

from dataclasses import replace

from PIL import Image, ImageOps

from .images import open_image
from .scaling import scaled_image
from .training_items import SeenImage, TrainingItem


def load_pixels(item: TrainingItem) -> Image.Image:
    """Returns the image as RGB, resized to cover width x height and cropped. Raises TrainError."""
    image = open_image(item.picture.file)
    if item.picture.is_control and not item.picture.keeps_colours and image.mode in ("RGBA", "LA"):
        image = Image.alpha_composite(Image.new("RGBA", image.size, "black"), image.convert("RGBA"))
    if image.mode.startswith("I;16"):  # Pillow would make every gray above 255 white
        image = image.convert("I").point(lambda gray: gray * (1 / 257) + 0).convert("L")
    return crop_image(image.convert("RGB"), item)


def crop_image(image: Image.Image, item: TrainingItem) -> Image.Image:
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


def _mirrored(image: Image.Image, item: TrainingItem) -> Image.Image:
    if item.flip_x:
        image = ImageOps.mirror(image)
    return ImageOps.flip(image) if item.flip_y else image


def seen_pixels(seen: SeenImage) -> Image.Image:
    """Returns a control image as the text encoder looks at it. Raises TrainError."""
    image = load_pixels(seen.item)
    if not seen.cut:
        return scaled_image(image, (seen.width, seen.height), "lanczos")
    picture = replace(seen.item.picture, width=image.width, height=image.height)
    return crop_image(image, replace(seen.item, picture=picture, width=seen.width, height=seen.height, scaled=None))
