"""Sizes as sd-scripts and musubi-tuner choose them: what their own BucketManager and BucketSelector answered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from PIL import Image

from zdoctor.doctor.model.buckets import Buckets, bucket_size, scaled_size
from zdoctor.doctor.model.datasets import Dataset
from zdoctor.doctor.train.dataset.pixels import load_pixels
from zdoctor.doctor.train.dataset.training_items import read_training_items

from ..patient import DATASET, run_with

PICTURES = ((1920, 1080), (1000, 1500), (640, 640), (4000, 700), (1024, 1024), (3000, 2000))
SD: Final = "sd-scripts"
MUSUBI: Final = "musubi-tuner"
# by 48d368fa and 30c658c4, on the pictures above; 3000 random sizes more for each agreed when this was written
CASES = [
    (Buckets(768, 512), [(768, 512)] * 6),
    (Buckets(384, 384, "musubi-control"), [(512, 288), (304, 480), (384, 384), (912, 160), (384, 384), (464, 304)]),
    (
        Buckets(1024, 1024, SD, 64),
        [(1024, 576), (704, 1024), (1024, 1024), (1024, 256), (1024, 1024), (1024, 704)],
    ),
    (
        Buckets(1024, 1024, SD, 64, 256, 2048),
        [(1344, 768), (832, 1216), (1024, 1024), (2048, 384), (1024, 1024), (1216, 832)],
    ),
    (
        Buckets(768, 512, SD, 32, 320, 1536),
        [(832, 448), (512, 768), (608, 608), (1216, 320), (608, 608), (768, 512)],
    ),
    (
        Buckets(1024, 1024, SD, 64, shrink_only=True),
        [(1344, 768), (832, 1216), (640, 640), (2176, 384), (1024, 1024), (1216, 832)],
    ),
    (
        Buckets(1024, 1024, MUSUBI),
        [(1360, 768), (832, 1248), (1024, 1024), (2048, 512), (1024, 1024), (1248, 832)],
    ),
    (
        Buckets(960, 544, MUSUBI),
        [(960, 544), (592, 880), (720, 720), (1472, 352), (720, 720), (880, 592)],
    ),
    (
        Buckets(1024, 1024, MUSUBI, shrink_only=True),
        [(1360, 768), (832, 1248), (640, 640), (2048, 512), (1024, 1024), (1248, 832)],
    ),
]


@pytest.mark.parametrize(("how", "sizes"), CASES)
def test_sizes_are_the_trainers(how: Buckets, sizes: list[tuple[int, int]]) -> None:
    assert [bucket_size(how, *picture) for picture in PICTURES] == sizes


@pytest.mark.parametrize(
    ("picture", "bucket", "scaled"),
    [
        ((1000, 1000), (960, 960), (1000, 1000)),
        ((1000, 1500), (832, 1216), (832, 1248)),
        ((50, 200), (64, 192), (64, 256)),  # smaller than a step, which sd-scripts cannot use
    ],
)
def test_bucket_no_upscale_cuts_the_bucket_out(
    picture: tuple[int, int], bucket: tuple[int, int], scaled: tuple[int, int], tmp_path: Path
) -> None:
    how = Buckets(1024, 1024, SD, 64, shrink_only=True)
    assert (bucket_size(how, *picture), scaled_size(how, *picture)) == (bucket, scaled)
    gradient = Image.linear_gradient("L").resize(picture).convert("RGB")
    gradient.save(tmp_path / "a.png")
    run = run_with(datasets=(replace(DATASET, buckets=how),))
    (item,) = read_training_items(run.recipe, {"datasets/0": str(tmp_path)}, 16)
    assert item.scaled == scaled
    pixels = load_pixels(item)
    assert pixels.size == bucket
    if scaled == picture:
        left, top = (picture[0] - bucket[0]) // 2, (picture[1] - bucket[1]) // 2
        assert pixels.tobytes() == gradient.crop((left, top, left + bucket[0], top + bucket[1])).tobytes()


def test_a_dataset_of_theirs(tmp_path: Path) -> None:
    """No folder inside, BMP too, the first line of a caption, and no picture without one where they leave it out."""
    (tmp_path / "inside").mkdir()
    for name in ("a.png", "b.bmp", "bare.png", "inside/c.png"):
        Image.new("RGB", (160, 128)).save(tmp_path / name)
    (tmp_path / "a.caption").write_text("first\nsecond\n")
    (tmp_path / "b.caption").write_text("\nsecond\n")
    theirs = Dataset(
        "datasets/0",
        "d",
        ".caption",
        (80,),
        "a cat",
        suffixes=(".png", ".bmp"),
        recursive=False,
        first_line=True,
        captionless=False,
        buckets=Buckets(96, 64),
    )
    items = read_training_items(run_with(datasets=(theirs,)).recipe, {"datasets/0": str(tmp_path)}, 16)
    found = [(item.picture.file.name, item.caption, item.width, item.height) for item in items]
    assert found == [("a.png", "first", 96, 64), ("b.bmp", "", 96, 64)]


def test_half_a_pixel_counts_as_a_whole_one(tmp_path: Path) -> None:
    """Of 455 x 256 pixels at a height of 384 the width is 682.5."""
    picture = Image.radial_gradient("L").resize((455, 256)).convert("RGB")
    picture.save(tmp_path / "a.png")
    run = run_with(datasets=(replace(DATASET, buckets=Buckets(672, 384, resampling="area")),))
    (item,) = read_training_items(run.recipe, {"datasets/0": str(tmp_path)}, 16)
    whole = picture.resize((683, 384), Image.Resampling.LANCZOS)
    assert load_pixels(item).tobytes() == whole.crop((5, 0, 677, 384)).tobytes()
