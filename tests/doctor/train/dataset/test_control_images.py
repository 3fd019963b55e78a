"""Control images of musubi-tuner's datasets: which belong to a picture, how large they become and what they show."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from zdoctor.doctor.model.buckets import Buckets
from zdoctor.doctor.train import TrainError
from zdoctor.doctor.train.dataset.pixels import load_pixels, seen_pixels
from zdoctor.doctor.train.dataset.training_items import TrainingItem, read_training_items

from ..patient import DATASET, run_with

CUT = Buckets(0, 0, resampling="area")
WHOLE = Buckets(1 << 20, 1 << 20, kind="musubi-tuner", shrink_only=True, resampling="area")
AREA = Buckets(256, 256, kind="musubi-control", resampling="area")


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """A picture cat and one called cat_2, and the folder of their control images."""
    data, before = tmp_path / "data", tmp_path / "before"
    for folder in (data, before):
        folder.mkdir()
    for name in ("cat", "cat_2"):
        Image.new("RGB", (128, 64), "white").save(data / f"{name}.png")
    return data, before


def items_of(folders: tuple[Path, Path], buckets: Buckets, architecture: str = "qwen_image_edit_plus") -> Any:
    data, before = folders
    dataset = replace(
        DATASET,
        control_folders=(str(before),),
        control_buckets=buckets,
        numbered_controls=True,
        buckets=Buckets(64, 64, resampling="area"),
    )
    run = run_with(datasets=(dataset,), architecture=architecture)
    items: list[TrainingItem] = read_training_items(run.recipe, {dataset.key: str(data)}, 16)
    return {item.picture.file.stem: item for item in items}


def test_numbered_images_belong_to_the_picture_of_the_longest_name(folders: tuple[Path, Path]) -> None:
    for name in ("cat_10", "cat_9", "cat", "cat_2", "cat_2_0"):
        Image.new("RGB", (70, 40), "red").save(folders[1] / f"{name}.png")
    items = items_of(folders, CUT)
    found = {name: [one.picture.file.stem for one in item.controls] for name, item in items.items()}
    assert found == {"cat": ["cat", "cat_9", "cat_10"], "cat_2": ["cat_2", "cat_2_0"]}
    Image.new("RGB", (70, 40), "red").save(folders[1] / "cat_left.png")
    with pytest.raises(TrainError, match=r"cat_left\.png begins with the name of .*cat\.png, but has no number"):
        items_of(folders, CUT)


@pytest.mark.parametrize(
    ("buckets", "size", "seen"),
    [(CUT, (64, 64), (384, 384)), (WHOLE, (192, 96), (528, 272)), (AREA, (352, 176), (528, 272))],
)
def test_the_size_of_control_images(
    folders: tuple[Path, Path], buckets: Buckets, size: tuple[int, int], seen: tuple[int, int]
) -> None:
    """That of their picture, their own in whole cells, or about an area; the text encoder sees about 384 x 384."""
    for name in ("cat", "cat_2"):
        image = Image.new("RGBA", (200, 100), (0, 0, 255, 0))
        image.paste((255, 0, 0, 0), (50, 0, 150, 100))
        image.save(folders[1] / f"{name}.png")
    item = items_of(folders, buckets)["cat"]
    control, shown = item.controls[0], item.seen[0]
    pixels = load_pixels(control)
    assert pixels.size == size == (control.width, control.height)
    assert seen_pixels(shown).size == seen
    # a square is cut out of the middle of what is wider, and what is transparent keeps its colour
    assert pixels.getpixel((0, 0)) == ((255, 0, 0) if buckets is CUT else (0, 0, 255))
    assert pixels.getpixel((size[0] // 2, 5)) == (255, 0, 0)


def test_qwen_image_edit_sees_the_first_alone(folders: tuple[Path, Path]) -> None:
    for name in ("cat", "cat_1", "cat_2"):
        Image.new("RGB", (64, 64), "red").save(folders[1] / f"{name}.png")
    cat = items_of(folders, CUT, "qwen_image_edit")["cat"]
    assert (len(cat.controls), len(cat.seen)) == (2, 1)
