"""Pictures are scaled as the trainers scale them: by Pillow's filters, or as OpenCV computes two of its own.

OpenCV's are computed here to the bit, in its order and its numbers (modules/imgproc/src/resize.cpp of 4.10), so that
it need not be installed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ...model.buckets import Resampling, Size

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

_LEAST_SHARE = 1e-3  # of a source pixel; OpenCV leaves out what is less
_ONE = 2048  # OpenCV's fixed point: the weight 1 of a source pixel
_STRIP = 64  # rows at a time, which stay in the processor's cache


def scaled_image(image: Image, size: Size, resampling: Resampling) -> Image:
    """Returns an RGB or gray image at a size of width x height, by the filter."""
    import numpy as np
    from PIL import Image as Images

    if resampling == "bicubic":
        return image.resize(size, Images.Resampling.BICUBIC)
    if resampling == "lanczos":
        return image.resize(size, Images.Resampling.LANCZOS)
    grows = size[0] > image.width or size[1] > image.height
    if resampling == "area" and grows:
        return image.resize(size, Images.Resampling.LANCZOS)
    pixels = np.frombuffer(image.tobytes(), np.uint8).reshape(image.height, image.width, -1)
    halved = (image.width, image.height) == (2 * size[0], 2 * size[1])
    made = _by_area(pixels, size) if resampling == "area" or halved else _linear(pixels, size)
    return Images.frombytes(image.mode, size, made.tobytes())


def _by_area(pixels: NDArray[np.uint8], size: Size) -> NDArray[np.uint8]:
    """The mean over what each new pixel covers: height x width x channels in and out, no side larger."""
    import numpy as np

    high, wide, channels = pixels.shape
    if wide % size[0] == 0 and high % size[1] == 0:  # whole pixels, added up as integers
        across, down = wide // size[0], high // size[1]
        cells = pixels.reshape(size[1], down, size[0], across, channels)
        total = cells.sum(axis=(1, 3), dtype=np.int32)
        if (across, down) == (2, 2):
            return _bytes((total + 2) >> 2)
        return _bytes(total.astype(np.float32) * np.float32(1 / (across * down)))
    shares, rows = _shares(wide, size[0]), np.empty((high, size[0], channels), np.float32)
    for top in range(0, high, _STRIP):
        rows[top : top + _STRIP] = _weighed(pixels[top : top + _STRIP], 1, shares)
    return _bytes(_weighed(rows, 0, _shares(high, size[1])))


def _bytes(values: NDArray[Any]) -> NDArray[np.uint8]:
    """The values rounded, halves to even ones."""
    return values.round().clip(0, 255).astype("uint8")


def _weighed(values: NDArray[Any], axis: int, taps: list[tuple[list[int], list[float]]]) -> NDArray[np.float32]:
    """Sums along an axis: each tap has for every place of the result its source and its weight."""
    import numpy as np

    shape = [1, 1, 1]
    shape[axis] = -1
    parts = (values.take(places, axis) * np.array(weights, np.float32).reshape(shape) for places, weights in taps)
    total: NDArray[np.float32] = next(parts)
    for part in parts:
        total += part
    return total


def _shares(source: int, target: int) -> list[tuple[list[int], list[float]]]:
    """Which source pixels each of `target` covers, and with which share, in order."""
    scale = 1.0 / (target / source)
    covered: list[list[tuple[int, float]]] = []
    for place in range(target):
        begin = place * scale
        end, width = begin + scale, min(scale, source - begin)
        last = min(math.floor(end), source - 1)
        first = min(math.ceil(begin), last)
        one = [(first - 1, (first - begin) / width)] if first - begin > _LEAST_SHARE else []
        one += [(inner, 1.0 / width) for inner in range(first, last)]
        if end - last > _LEAST_SHARE:
            one.append((last, min(end - last, 1.0, width) / width))
        covered.append(one)
    most = max(map(len, covered))
    padded = [one + [(one[-1][0], 0.0)] * (most - len(one)) for one in covered]
    return [([one[tap][0] for one in padded], [one[tap][1] for one in padded]) for tap in range(most)]


def _linear(pixels: NDArray[np.uint8], size: Size) -> NDArray[np.uint8]:
    """Between the four nearest pixels in OpenCV's fixed point: height x width x channels in and out."""

    high, wide, _ = pixels.shape
    near, far, rest, share = _neighbours(wide, size[0], inside=True)
    rows = pixels.take(near, 1) * rest[:, None] + pixels.take(far, 1) * share[:, None] >> 4
    near, far, rest, share = _neighbours(high, size[1], inside=False)
    mixed = (rows.take(near, 0) * rest[:, None, None] >> 16) + (rows.take(far, 0) * share[:, None, None] >> 16)
    return _bytes((mixed + 2) >> 2)


def _neighbours(source: int, target: int, *, inside: bool) -> tuple[NDArray[np.int32], ...]:
    """The two source pixels beside each of `target`, and their weights.

    `inside`: beyond the outermost centres the outermost pixel alone counts.
    """
    import numpy as np

    scale = 1.0 / (target / source)
    place = ((np.arange(target) + 0.5) * scale - 0.5).astype(np.float32)
    first = np.floor(place)
    part = place - first
    if inside:
        part[(first < 0) | (first >= source - 1)] = 0
    whole = first.astype(np.int32)
    weights = (np.rint(weight * np.float32(_ONE)).astype(np.int32) for weight in (1 - part, part))
    return whole.clip(0, source - 1), (whole + 1).clip(0, source - 1), *weights
