"""minimum_image_size leaves out the pictures that SimpleTuner leaves out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from zdoctor.doctor.model.buckets import bucket_size
from zdoctor.doctor.train import TrainError
from zdoctor.doctor.train.dataset.training_items import read_training_items

from .runs import SET, said, trained

PIXEL, AREA = {"resolution_type": "pixel"}, {"resolution_type": "area"}
SQUARE = {"crop": True}


@pytest.mark.parametrize(
    ("of_set", "size", "trained_at"),
    [
        # MultiaspectImage and TrainingSample.calculate_target_size of bc8e6ab7, run for these
        ({"resolution": 1024}, (1500, 1000), (1280, 832)),
        ({"resolution": 1024}, (300, 400), (896, 1152)),  # enlarged
        ({"resolution": 512}, (640, 640), (512, 512)),
        ({"resolution": 700}, (1500, 1000), (832, 576)),
        ({"resolution": 700}, (900, 901), (768, 768)),  # 0.49 megapixels are taken for those of 768 x 768
        ({"resolution": 768}, (4000, 300), (2816, 192)),
        ({"resolution": 1.0, **AREA}, (4000, 3000), (1152, 896)),
        ({"resolution": 0.5, **AREA}, (768, 1024), (640, 832)),
        ({"resolution": 512, **PIXEL}, (1500, 1000), (768, 512)),
        ({"resolution": 768, **PIXEL}, (1000, 1500), (768, 1152)),
        ({"resolution": 512, **PIXEL, **SQUARE}, (1500, 1000), (512, 512)),
        ({"resolution": 1000, **SQUARE}, (1500, 1000), (1024, 1024)),
    ],
)
def test_sizes_are_simpletuners(of_set: dict[str, Any], size: tuple[int, int], trained_at: tuple[int, int]) -> None:
    run = trained({}, {**SET, **of_set})
    assert bucket_size(run.recipe.datasets[0].buckets_at(0), *size) == trained_at


@pytest.mark.parametrize("resolution", [-1, 0, 1e300, "x"])
@pytest.mark.parametrize("kind", [{}, PIXEL, AREA])
def test_resolutions_that_are_none_do_no_harm(resolution: object, kind: dict[str, Any]) -> None:
    said({}, {**SET, "resolution": resolution, **kind})
    assert "resolution_type odd is not known" in said({}, {**SET, "resolution_type": "odd"})


def test_the_steps_between_sizes() -> None:
    sizes = trained({"aspect_bucket_alignment": 32, "aspect_bucket_rounding": 3}).recipe.datasets[0].buckets
    assert sizes is not None and (sizes.step, sizes.digits) == (32, 3)
    flux = {"model_family": "flux", "model_flavour": "dev", "aspect_bucket_alignment": 32}
    assert trained(flux).recipe.datasets[0].buckets_at(0).step == 64  # SimpleTuner takes no other for it
    assert "aspect_bucket_alignment must be a multiple of 16" in said({"aspect_bucket_alignment": 8})


@pytest.mark.parametrize(
    ("of_set", "written", "size", "taken"),
    [
        # _handle_resolution_conversion and meets_resolution_requirements of bc8e6ab7, run for these
        ({"minimum_image_size": 512}, {}, (512, 512), True),
        ({"minimum_image_size": 512}, {}, (511, 512), False),
        ({"minimum_image_size": 512}, {}, (256, 1024), True),  # as many pixels
        ({"minimum_image_size": 512, **SQUARE}, {}, (256, 1024), False),  # a square is cut from it
        ({"minimum_image_size": 512, "crop": True, "crop_aspect": "square"}, {}, (512, 513), True),
        ({"minimum_image_size": 512, **PIXEL}, {}, (256, 1024), False),
        ({"minimum_image_size": 512, **PIXEL}, {}, (512, 1024), True),
        ({"minimum_image_size": 0.5, **AREA}, {}, (708, 708), True),
        ({"minimum_image_size": 0.5, **AREA}, {}, (707, 707), False),
        ({"minimum_image_size": 0.5, **AREA, **SQUARE}, {}, (706, 1000), False),
        ({"minimum_image_size": 0.5, **AREA, **SQUARE}, {}, (707, 1000), True),
        ({"minimum_image_size": 512}, PIXEL, (256, 1024), False),
        ({}, {"minimum_image_size": 512, **PIXEL}, (512, 511), False),
        ({}, {"minimum_image_size": 0.25}, (500, 500), True),
        ({}, {"minimum_image_size": 0.25}, (500, 499), False),
        ({"minimum_image_size": 0}, {"minimum_image_size": 4}, (1, 1), True),
        ({}, {"minimum_image_size": 0}, (1, 1), True),
        ({"minimum_image_size": 2236}, {}, (2236, 2236), True),
    ],
)
def test_a_picture_is_taken_or_not(
    of_set: dict[str, Any], written: dict[str, Any], size: tuple[int, int], taken: bool
) -> None:
    (dataset,) = trained(written, {**SET, **of_set}).recipe.datasets
    assert dataset.takes(*size) == taken


@pytest.mark.parametrize(
    ("of_set", "written", "place", "why"),
    [
        ({}, {"minimum_image_size": 512}, "config.json:", "of the whole run counts megapixels; write one of pixels"),
        ({"minimum_image_size": 512, **AREA}, {}, "data.json:", "minimum_image_size asks for 512 megapixels"),
        ({"minimum_image_size": 2400}, {}, "data.json:", "minimum_image_size asks for 5.76 megapixels"),
    ],
)
def test_a_size_that_leaves_out_every_picture_is_refused(
    of_set: dict[str, Any], written: dict[str, Any], place: str, why: str
) -> None:
    told = said(written, {**SET, **of_set})
    assert why in told
    assert place in told


def pictures(folder: Path, *sizes: tuple[int, int]) -> None:
    for number, size in enumerate(sizes):
        Image.new("RGB", size).save(folder / f"{number}.png")
        (folder / f"{number}.txt").write_text("a lantern", encoding="utf-8")


def test_those_left_out_are_told(tmp_path: Path) -> None:
    run = trained({}, {**SET, "minimum_image_size": 64})
    pictures(tmp_path, (64, 64), (60, 60), (32, 128))
    told: list[str] = []
    items = read_training_items(run.recipe, {"datasets/0": str(tmp_path)}, 16, tell=told.append)
    assert [item.picture.file.name for item in items] == ["0.png", "2.png"]
    (note,) = told
    assert "minimum_image_size leaves out 1 of 3 images" in note
    assert "1.png (60 x 60)" in note


def test_a_dataset_of_small_pictures_only_ends_the_run(tmp_path: Path) -> None:
    pictures(tmp_path, (60, 60))
    with pytest.raises(
        TrainError, match=r"No image in .* is as large as minimum_image_size asks: .*0\.png \(60 x 60"
    ):
        read_training_items(trained({}, {**SET, "minimum_image_size": 64}).recipe, {"datasets/0": str(tmp_path)}, 16)
