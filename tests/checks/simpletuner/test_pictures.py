"""Sets of pictures that are too small for their settings."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from zdoctor.checks.simpletuner.pictures import _shape
from zdoctor.doctor.model import Image
from zdoctor.doctor.model.buckets import Buckets

from .runs import HEALTHY, SET, ids, looked_at

Kind = Literal["simpletuner-area", "simpletuner-pixel"]


@pytest.mark.parametrize(
    ("images", "written", "of_set", "needed"),
    [
        (0, {}, {}, -1),
        (3, {"train_batch_size": 4}, {}, 1),
        (3, {"train_batch_size": ...}, {}, 1),  # 4 is the default
        (1, {"train_batch_size": 2, "gradient_accumulation_steps": 4}, {"repeats": 3}, 7),
        (3, {"train_batch_size": 4}, {"repeats": 1}, None),
        (4, {"train_batch_size": 4}, {}, None),
        (3, {"train_batch_size": 4, "allow_dataset_oversubscription": True}, {}, None),
    ],
)
def test_too_few_images(images: int, written: dict[str, Any], of_set: dict[str, Any], needed: int | None) -> None:
    found = looked_at({**HEALTHY, **written}, [{**SET, **of_set}], images).findings
    assert [finding.rule for finding in found] == ([] if needed is None else ["SIM007"])
    if needed is not None and needed > 0:
        assert found[0].evidence["likely"] == needed
        each = (
            written.get("train_batch_size", 4) if written.get("train_batch_size", 4) is not ... else 4
        ) * written.get("gradient_accumulation_steps", 1)
        assert images * (needed + 1) >= each > images * needed


@pytest.mark.parametrize(
    ("sizes", "of_set", "said"),
    [
        ([(512, 512)] * 3 + [(1024, 1024)] * 4, {"minimum_image_size": 600}, None),
        ([(512, 512)] * 3 + [(1024, 1024)] * 2, {"minimum_image_size": 600}, "2 pictures with repeats: 0 make 2"),
        ([(512, 512)] * 8, {"minimum_image_size": 600}, "No picture in /data/lanterns is as large"),
        ([(400, 1200)] * 4, {"minimum_image_size": 600}, None),  # as many pixels
        ([(400, 1200)] * 4, {"minimum_image_size": 600, "crop": True}, "No picture in"),
    ],
)
def test_small_pictures_do_not_count(sizes: list[tuple[int, int]], of_set: dict[str, Any], said: str | None) -> None:
    report = looked_at({**HEALTHY, "train_batch_size": 4}, [{**SET, **of_set}], sizes=sizes)
    assert ids(report) == ([] if said is None else ["SIM007"])
    assert said is None or said in report.findings[0].text()


@pytest.mark.parametrize(
    ("sizes", "written", "of_set", "left"),
    [
        ([(1024, 1024)] * 4, {}, {}, None),
        ([(1024, 1024)] * 4 + [(1500, 1000)], {}, {}, 1),
        ([(1024, 1024)] * 4 + [(1024, 1000)], {}, {}, None),  # the same after rounding to 64 pixels
        ([(1024, 1024)] * 4 + [(1500, 1000)], {}, {"repeats": 3}, None),
        ([(1024, 1024)] * 4 + [(1500, 1000)], {"train_batch_size": 1}, {}, None),
        ([(1024, 1024)] * 4 + [(1500, 1000)], {}, {"crop": True}, None),
        ([(1024, 1024)] * 4 + [(1500, 1000)], {"allow_dataset_oversubscription": True}, {}, None),
        ([(600, 900)] * 3 + [(900, 600)] * 4, {}, {"resolution_type": "pixel", "resolution": 512}, 3),
    ],
)
def test_shapes_that_too_few_pictures_have(
    sizes: list[tuple[int, int]], written: dict[str, Any], of_set: dict[str, Any], left: int | None
) -> None:
    report = looked_at({**HEALTHY, "train_batch_size": 4, **written}, [{**SET, **of_set}], sizes=sizes)
    assert ids(report) == ([] if left is None else ["SIM009"])
    if left is not None:
        assert sum(report.findings[0].evidence["shapes"].values()) == left


@pytest.mark.parametrize(
    ("size", "edge", "kind", "shape"),
    [
        # what MultiaspectImage of bc8e6ab7 computes, run for these sizes
        ((1024, 1024), 1024, "simpletuner-area", 1.0),
        ((1500, 1000), 1024, "simpletuner-area", 1.54),
        ((1000, 1500), 1024, "simpletuner-area", 0.65),
        ((4000, 300), 512, "simpletuner-area", 14.5),
        ((901, 900), 768, "simpletuner-pixel", 1.0),
        ((1500, 1000), 512, "simpletuner-pixel", 1.5),
    ],
)
def test_shapes_are_the_trainers(size: tuple[int, int], edge: int, kind: Kind, shape: float) -> None:
    assert _shape(Buckets(edge, 64, kind, 64), Image("a.png", *size, True)) == shape
