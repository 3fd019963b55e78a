"""Reference pictures of Flux Kontext are paired with those that they are edited into."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageOps

from zdoctor.doctor.commands.train import train
from zdoctor.tests.doctor.train.conftest import circles, flux

from .runs import CONFIG, SET, differences, run_of, said, trained

__all__ = ["circles", "flux"]
KONTEXT = {"model_family": "flux", "model_flavour": "kontext"}
# as documentation/quickstart/FLUX_KONTEXT.md has them
EDITED: dict[str, Any] = {**SET, "id": "edited", "conditioning_data": ["reference"], "caption_strategy": "textfile"}
REFERENCE: dict[str, Any] = {
    "id": "reference",
    "type": "local",
    "instance_data_dir": "references/{id}",
    "cache_dir_vae": "cache/vae/reference",
    "conditioning_type": "reference_strict",
    "resolution": 1024,
    "caption_strategy": None,
}


@pytest.mark.parametrize(
    ("edited", "reference"),
    [
        (EDITED, REFERENCE),
        ({**EDITED, "conditioning_data": "reference"}, {**REFERENCE, "dataset_type": "conditioning"}),
        ({**EDITED, "conditioning_data": ...}, {**REFERENCE, "source_dataset_id": "edited"}),
        (EDITED, {**REFERENCE, "caption_strategy": "textfile", "crop": True, "minimum_image_size": 9}),
    ],
)
def test_a_pair_of_datasets(edited: dict[str, Any], reference: dict[str, Any]) -> None:
    edited = {name: value for name, value in edited.items() if value is not ...}
    for sets in ((edited, reference), (reference, edited)):
        run = trained(KONTEXT, *sets)
        (dataset,) = run.recipe.datasets
        assert (dataset.folder, dataset.control_folders) == ("pictures", ("references/reference",))
        assert run.where(f"{dataset.key}/control_folders").path == "data.json"
    assert "one noise level" in " ".join(differences(run_of(KONTEXT, edited, reference)))
    assert "noise level" not in " ".join(differences(run_of(KONTEXT, SET)))


def test_a_dataset_of_the_hub_is_refused_once() -> None:
    told = said({}, {"id": "a", "type": "huggingface", "dataset_name": "a/b", "caption_strategy": "huggingface"})
    assert "type huggingface is not supported; put its pictures in a folder" in told
    assert told.count("\n") == 1


def test_parts_of_the_model_where_they_are_anyway() -> None:
    base = {"pretrained_model_name_or_path": "me/tuned", "pretrained_transformer_subfolder": "none"}
    trained({**base, "pretrained_vae_model_name_or_path": "me/tuned"})
    assert "pretrained_vae_model_name_or_path x/y" in said({**base, "pretrained_vae_model_name_or_path": "x/y"})
    assert "pretrained_transformer_subfolder a" in said({"pretrained_transformer_subfolder": "a"})


def test_a_reference_that_is_switched_off() -> None:
    told = said(KONTEXT, EDITED, {**REFERENCE, "disabled": True})
    assert "conditioning_data names reference, which is no conditioning dataset here" in told
    assert trained(KONTEXT, SET, {**REFERENCE, "disabled": True}).recipe.datasets[0].control_folders == ()


@pytest.mark.parametrize(
    ("written", "sets", "why"),
    [
        ({}, (EDITED, REFERENCE), "The conditioning dataset reference is not supported: only Flux Kontext"),
        (KONTEXT, (SET, REFERENCE), "No dataset names reference in its conditioning_data"),
        (
            KONTEXT,
            (EDITED, {**REFERENCE, "conditioning_type": "reference_loose"}),
            "reference_loose is not",
        ),
        (KONTEXT, (EDITED, {**REFERENCE, "conditioning_type": "mask"}), "conditioning_type mask is not supported"),
        (
            *(KONTEXT, (EDITED, {**REFERENCE, "conditioning_type": None, "dataset_type": "conditioning"})),
            "conditioning_type none is not supported; use reference_strict",
        ),
        (KONTEXT, (EDITED, {**REFERENCE, "type": "huggingface"}), "A conditioning dataset of the type huggingface"),
        (KONTEXT, (EDITED, {**REFERENCE, "conditioning_config": {"a": 1}}), "conditioning_config … is not supported"),
        (
            *(KONTEXT, ({**EDITED, "conditioning_data": ["reference", "b"]}, REFERENCE, {**REFERENCE, "id": "b"})),
            "Several conditioning datasets for one dataset",
        ),
        (KONTEXT, ({**EDITED, "conditioning_data": "refs"}, REFERENCE), "conditioning_data names refs"),
        (KONTEXT, ({**SET, "conditioning": [{"type": "canny"}]},), "conditioning … is not supported"),
    ],
)
def test_the_rest_is_refused_by_name(written: dict[str, Any], sets: tuple[dict[str, Any], ...], why: str) -> None:
    assert why in said(written, *sets)
    assert "(data.json:" in said(written, *sets)


def test_a_kontext_config_is_trained(
    flux: Path, circles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    references = tmp_path / "references" / "reference"
    references.mkdir(parents=True)
    for file in circles.glob("*.png"):
        with Image.open(file) as image:
            ImageOps.mirror(image).save(references / file.name)
    config = {
        **CONFIG,
        **KONTEXT,
        "pretrained_model_name_or_path": str(flux),
        "output_dir": str(tmp_path / "output" / "kontext"),
        "max_train_steps": 2,
        "train_batch_size": 2,
        "optimizer": "optimi-lion",
        "conditioning_multidataset_sampling": "random",
        "seed": 42,
    }
    data = [
        {**EDITED, "instance_data_dir": str(circles), "resolution": 128},
        {**REFERENCE, "instance_data_dir": str(tmp_path / "references" / "{id}"), "resolution": 128},
    ]
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (tmp_path / "config" / "data.json").write_text(json.dumps(data), encoding="utf-8")
    monkeypatch.setenv("ZDOCTOR_CACHE", str(tmp_path / "cache"))
    result = train(str(tmp_path / "config" / "config.json"))
    assert (result.stopped, result.steps) == ("finished", 2)
    assert len(list((tmp_path / "output" / "kontext" / ".cache").glob("latent-*"))) == 2 * 6
