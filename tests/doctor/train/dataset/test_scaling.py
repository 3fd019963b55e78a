"""OpenCV's filters without OpenCV: what its resize (4.10) made of the same gray values."""

from __future__ import annotations

import pytest
from PIL import Image

from zdoctor.doctor.model.buckets import Resampling, Size
from zdoctor.doctor.train.dataset.scaling import scaled_image

CASES: list[tuple[Resampling, Size, Size, list[int]]] = [
    ("area", (7, 5), (3, 2), [99, 130, 162, 90, 122, 153]),
    ("area", (6, 4), (3, 2), [97, 99, 165, 173, 111, 113]),
    ("area", (6, 6), (2, 2), [123, 130, 134, 112]),
    ("area", (9, 4), (4, 4), [78, 123, 167, 99, 154, 142, 159, 90, 145, 77, 121, 166, 108, 96, 113, 158]),
    ("area", (8, 8), (3, 5), [101, 132, 162, 113, 120, 126, 126, 124, 123, 139, 138, 136, 111, 130, 148]),
    ("linear", (7, 5), (3, 2), [75, 173, 186, 66, 79, 177]),
    ("linear", (6, 4), (3, 2), [97, 99, 165, 173, 111, 113]),
    ("linear", (6, 6), (2, 2), [180, 215, 134, 169]),
    ("linear", (9, 4), (4, 4), [74, 68, 222, 120, 179, 141, 103, 65, 124, 22, 176, 170, 133, 95, 57, 179]),
    ("linear", (8, 8), (3, 5), [96, 99, 101, 109, 111, 114, 122, 125, 127, 134, 137, 140, 147, 150, 153]),
    (
        "linear",
        (3, 2),
        (5, 4),
        [13, 52, 110, 168, 207, 22, 60, 119, 177, 216, 39, 78, 136, 194, 233, 48, 87, 145, 203, 242],
    ),
]


@pytest.mark.parametrize(("resampling", "before", "after", "expected"), CASES)
def test_pixels_are_opencvs(resampling: Resampling, before: Size, after: Size, expected: list[int]) -> None:
    values = bytes((number * 97 + 13) % 256 for number in range(before[0] * before[1]))
    gray = Image.frombytes("L", before, values)
    assert list(scaled_image(gray, after, resampling).tobytes()) == expected
    colours = Image.merge("RGB", [gray, gray.rotate(180), gray])
    assert list(scaled_image(colours, after, resampling).getchannel("R").tobytes()) == expected


def test_what_grows_by_area_is_scaled_by_lanczos() -> None:
    image = Image.radial_gradient("L").resize((40, 30)).convert("RGB")
    for size in ((60, 45), (60, 30)):
        assert scaled_image(image, size, "area").tobytes() == image.resize(size, Image.Resampling.LANCZOS).tobytes()
