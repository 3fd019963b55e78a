"""The sizes that pictures are brought to by ai-toolkit (27a03a91), sd-scripts (48d368fa), musubi-tuner (30c658c4) and
SimpleTuner (bc8e6ab7), and the filters that scale them; zdoctor's own runner follows the trainer of the config.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Literal, NamedTuple

Size = tuple[int, int]
# "bicubic": Pillow's. "area": the mean of what a pixel covers, as OpenCV has it, where neither side grows; else
# Pillow's Lanczos. "linear": between the four nearest pixels, as OpenCV has it, also where it shrinks.
Resampling = Literal["bicubic", "lanczos", "area", "linear"]


class Buckets(NamedTuple):
    """A resolution of width x height and how a picture's own size is taken into account.

    "one": every picture gets the resolution. "ai-toolkit": a picture keeps its shape, with the area of the resolution
    or its own where that is smaller, and sides in steps of `step` pixels. "sd-scripts" and "musubi-tuner": the
    trainer's list of sizes of about its area, in steps of `step` pixels; of sd-scripts with sides from `least` to
    `most`. With `shrink_only` a picture gets a size of its own, no larger than itself; musubi-tuner takes its list
    for those of more area; "one" is cut out of the picture as it is. "musubi-control": about the area in the
    picture's own shape. "simpletuner-area" and "simpletuner-pixel": the
    area, or the shorter side, of `width`, in the picture's shape to `digits` decimals, enlarged where it is smaller;
    what is square then has the sides `height`, as every picture has with `squared`. Pictures are scaled by
    `resampling`; with `cut_first` they are mirrored after they are scaled and cut.
    """

    width: int
    height: int
    kind: Literal[
        "one", "ai-toolkit", "sd-scripts", "musubi-tuner", "musubi-control", "simpletuner-area", "simpletuner-pixel"
    ] = "one"
    step: int = 16
    least: int = 256
    most: int = 1024
    shrink_only: bool = False
    digits: int = 2
    resampling: Resampling = "bicubic"
    cut_first: bool = False
    squared: bool = False


def bucket_size(how: Buckets, width: int, height: int) -> Size:
    """The width and height that a picture of this size is trained at."""
    if how.kind == "one":
        return how.width, how.height
    if how.kind == "ai-toolkit":
        return _nearest_area(how, width, height)
    if how.kind.startswith("simpletuner"):
        return _in_its_shape(how, width, height)
    if how.kind == "musubi-control":
        return _of_control(how, width, height)
    if how.shrink_only:
        if how.kind == "sd-scripts":
            wide, high = _shrunk(how, width, height)
            return _down(wide, how.step), _down(high, how.step)
        if width * height <= how.width * how.height:
            return _down(width, how.step), _down(height, how.step)
    sizes = _sizes(how)
    if how.kind == "sd-scripts" and (width, height) in sizes:
        return width, height
    return min(sizes, key=lambda size: abs(size[0] / size[1] - width / height))


def scaled_size(how: Buckets, width: int, height: int) -> Size:
    """What a picture is scaled to before its bucket is cut out of the middle of it."""
    bucket = bucket_size(how, width, height)
    if how.shrink_only and how.kind != "musubi-tuner":
        made = (width, height) if how.kind == "one" else _shrunk(how, width, height)
        if made[0] >= bucket[0] and made[1] >= bucket[1]:
            return made
    scale = max(bucket[0] / width, bucket[1] / height)
    if how.resampling == "bicubic":
        return math.ceil(width * scale), math.ceil(height * scale)
    if how.kind.startswith("simpletuner"):
        return _around(bucket, width, height, by_area=how.kind == "simpletuner-area")
    return max(bucket[0], int(width * scale + 0.5)), max(bucket[1], int(height * scale + 0.5))


def _nearest_area(how: Buckets, width: int, height: int) -> Size:
    """Of the sides rounded down and up those of the nearest area, as get_bucket_for_image_size chooses them."""
    most = how.width * how.height
    wanted = min(width * height, most)
    scale = (wanted / (width * height)) ** 0.5
    wide, high = width * scale / how.step, height * scale / how.step
    pairs = [
        (round_wide(wide) * how.step, round_high(high) * how.step)
        for round_wide in (math.floor, math.ceil)
        for round_high in (math.floor, math.ceil)
    ]
    fitting = [(w, h) for w, h in pairs if w > 0 and h > 0 and w * h <= most]
    if not fitting:
        return max(how.step, math.floor(wide) * how.step), max(how.step, math.floor(high) * how.step)
    return min(fitting, key=lambda size: abs(size[0] * size[1] - wanted))


def _of_control(how: Buckets, width: int, height: int) -> Size:
    """Of five widths about the one that the area asks for that of the nearest shape (calculate_bucket_resolution)."""
    area, shape = how.width * how.height, width / height
    middle = int(math.sqrt(area * shape)) // how.step * how.step
    sides = (middle + number * how.step for number in range(-2, 3))
    sizes = [(side, area // side // how.step * how.step) for side in sides if side > 0]
    return min((size for size in sizes if size[1] > 0), key=lambda size: abs(size[0] / size[1] - shape))


def _in_its_shape(how: Buckets, width: int, height: int) -> Size:
    """As MultiaspectImage and TrainingSample.calculate_target_size compute it."""
    if how.squared:
        return how.height, how.height
    shape = round(width / height, how.digits) or 10.0**-how.digits
    if how.kind == "simpletuner-area":
        wide, high = how.width * math.sqrt(shape), how.width / math.sqrt(shape)
    elif width < height:
        wide, high = how.width, int(how.width / shape)
    else:
        wide, high = int(how.width * shape), how.width
    made = nearest(wide, how.step), nearest(high, how.step)
    return (how.height, how.height) if round(made[0] / made[1], how.digits) == 1.0 else made


def _around(bucket: Size, width: int, height: int, *, by_area: bool) -> Size:
    """As SimpleTuner rounds what it cuts the bucket out of; what would be too small for a square becomes one."""
    shape, (wide, high) = width / height, bucket
    is_upright = wide < high if by_area else width < height
    around = (wide, int(wide / shape)) if is_upright else (int(high * shape), high)
    if wide > around[0]:
        around = wide, (around[1] + int((wide - around[0]) / shape) if by_area else int(wide / shape))
    elif high > around[1]:
        around = (around[0] + int((high - around[1]) * shape) if by_area else int(high * shape)), high
    return max(wide, around[0]), max(high, around[1])


def nearest(side: float, step: int) -> int:
    """The nearest multiple of `step`, at least one."""
    return max(step, round(side / step) * step)


@cache
def _sizes(how: Buckets) -> tuple[Size, ...]:
    """The list of a trainer, sorted: of two that fit as well, it takes the first."""
    area, found, step = how.width * how.height, set[Size](), how.step
    root = int(math.sqrt(area))
    if how.kind == "sd-scripts":
        found.add((_down(root, step), _down(root, step)))
        least, most = how.least - how.least % step, math.ceil(how.most / step) * step
        sides = range(least, most + 1, step)
    else:
        least, most, sides = 0, area, range(root // 2 // step * step, root + step, step)
    for side in sides:
        other = min(most, area // side // step * step)
        if other >= least:
            found |= {(side, other), (other, side)}
    return tuple(sorted(found))


def _shrunk(how: Buckets, width: int, height: int) -> Size:
    """sd-scripts' bucket_no_upscale: the picture's own shape, of whose roundings the nearer one counts."""
    area, shape = how.width * how.height, width / height
    if width * height > area:
        wide = _down(int(math.sqrt(area * shape) + 0.5), how.step)
        high = _down(int(area / math.sqrt(area * shape) + 0.5), how.step)
        by_width = wide / _down(int(wide / shape + 0.5), how.step)
        by_height = _down(int(high * shape + 0.5), how.step) / high
        if abs(by_width - shape) < abs(by_height - shape):
            width, height = wide, int(wide / shape + 0.5)
        else:
            width, height = int(high * shape + 0.5), high
    return width, height


def _down(side: int, step: int) -> int:
    return max(step, side // step * step)
