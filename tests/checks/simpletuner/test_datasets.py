"""Datasets that SimpleTuner refuses, each said with its line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from zdoctor.doctor.examine.engine import prescribe
from zdoctor.doctor.model import SetValue

from .runs import HEALTHY, SET, TEXT, ids, looked_at

SICK_DATA: Sequence[tuple[object, str]] = [
    ([], "no dataset to train on"),
    ([TEXT], "no dataset to train on"),
    ([{**SET, "disabled": True}, TEXT], "no dataset to train on"),
    ({"a": 1}, "must be a list"),
    ([SET, 3], "no dataset."),
    ([{**SET, "id": ""}], "id is missing"),
    ([{**SET, "type": None}], "type is missing"),
    ([{**SET, "instance_data_dir": None}], "needs a folder"),
    ([{**SET, "caption_strategy": "text_file"}], "textfile"),
    ([{**SET, "caption_strategy": "instanceprompt"}], "no instance_prompt"),
    ([{**SET, "caption_strategy": "huggingface"}], "of that type only"),
    ([{**SET, "resolution_type": "pixel_area|area|pixel"}], "does not know"),
    ([{**SET, "dataset_type": "images"}], "image"),
    ([{**SET, "crop_style": "middle"}], "does not know"),
    ([{**SET, "crop_aspect": "random"}], "crop_aspect_buckets"),
    ([{**SET, "maximum_image_size": 2048}], "target_downsample_size"),
    ([{**SET, "resolution_type": "area", "maximum_image_size": 2048, "target_downsample_size": 1}], "megapixels"),
    ([{**SET, "resolution_type": "pixel", "maximum_image_size": 4, "target_downsample_size": 512}], "pixels"),
    ([{**SET, "resolution": 1024.5}], "whole number of pixels"),
    ([{**SET, "resolution_type": "area", "minimum_image_size": 512}], "asks for 512 megapixels"),
    ([{**SET, "minimum_image_size": 2400}], "asks for 5.76 megapixels"),
    ([{**SET, "disable_vae_cache": True}], "vae_cache_disable"),
    ([SET, {**SET, "cache_dir_vae": "other"}], "have the id lanterns"),
    ([SET, {**SET, "id": "two", "cache_dir_vae": "cache/vae/lanterns"}], "same folder"),
    ([{**SET, "cache_dir_vae": "cache/text"}, TEXT], "same folder"),
    ([SET, {**TEXT, "default": True}, {**TEXT, "id": "b", "default": True}], "marked as default"),
    ([{**SET, "text_embeds": "txt"}, TEXT], "has that id"),
    ([{**SET, "crop": "false"}, TEXT], "any text counts as true"),
    ([{**SET, "id": "two", "disabled": "no"}, SET, TEXT], "any text counts as true"),
]


@pytest.mark.parametrize(("data", "said"), SICK_DATA, ids=range(len(SICK_DATA)))
def test_sick_datasets(data: object, said: str) -> None:
    report = looked_at(HEALTHY, data)
    found = [finding for finding in report.findings if finding.rule == "SIM006"]
    assert any(said in finding.text() for finding in found), [finding.text() for finding in report.findings]
    assert all(finding.where is not None and finding.consequence() for finding in found)


HARMLESS_DATA: Sequence[list[dict[str, Any]]] = [
    [SET],  # the trainer makes a text cache of its own
    [SET, {**SET, "id": "two"}, TEXT],
    [{**SET, "id": "off", "disabled": True, "caption_strategy": "nonsense"}, SET, TEXT],
    [{**SET, "caption_strategy": "instanceprompt", "instance_prompt": "a lantern"}],
    [{**SET, "type": "huggingface", "caption_strategy": "huggingface", "instance_data_dir": None}],
    [{**SET, "resolution": 1, "resolution_type": "area", "maximum_image_size": 4, "target_downsample_size": 2}],
    [{**SET, "minimum_image_size": 1000}],
    [{**SET, "minimum_image_size": 1, "resolution_type": "area", "resolution": 1}],
    [{**SET, "minimum_image_size": 512, "resolution_type": "pixel"}],
    [{**SET, "crop_aspect": "closest", "crop_aspect_buckets": [0.5, 1.0]}],
    [SET, {"id": "canny", "type": "local", "dataset_type": "conditioning"}, TEXT],
]


@pytest.mark.parametrize("data", HARMLESS_DATA, ids=range(len(HARMLESS_DATA)))
def test_harmless_datasets(data: list[dict[str, Any]]) -> None:
    report = looked_at(HEALTHY, data)
    assert ids(report) == [], [finding.text() for finding in report.findings]


def test_sizes_in_an_unknown_unit_are_not_judged() -> None:
    data = [{**SET, "resolution_type": "pixel_area|area", "minimum_image_size": 1024, "resolution": 1.5}, TEXT]
    (finding,) = (one for one in looked_at(HEALTHY, data).findings if one.rule == "SIM006")
    assert "does not know" in finding.text()


def test_the_least_size_of_the_whole_run_counts_megapixels() -> None:
    found = looked_at({**HEALTHY, "minimum_image_size": 512}, [SET, TEXT]).findings
    (finding,) = (one for one in found if one.rule == "SIM006")
    assert finding.text().endswith("It is an edge in pixels only where the dataset itself says it.")
    assert ids(looked_at({**HEALTHY, "minimum_image_size": 512}, [{**SET, "minimum_image_size": 512}, TEXT])) == []


def test_the_file_of_datasets_is_said_with_its_line() -> None:
    report = looked_at(HEALTHY, [{**SET, "caption_strategy": "textfle"}])
    where = report.findings[0].where
    assert where is not None
    assert (where.path, where.line) == ("/st/config/data.json", 6)
    step = prescribe(report).steps[0]
    assert step == SetValue("/st/config/data.json", "/0/caption_strategy", "textfile")


@pytest.mark.parametrize("name", ["config/none.json", "config/examples/multidatabackend-x.json", ...])
def test_a_file_of_datasets_that_is_not_there(name: Any) -> None:
    found = looked_at({**HEALTHY, "data_backend_config": name}).findings
    assert [(f.rule, f.severity) for f in found] == ([] if "examples" in str(name) else [("SIM006", "warning")])
