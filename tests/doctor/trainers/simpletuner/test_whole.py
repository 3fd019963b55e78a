"""A config as the trainer's guides have it trains, from its files to its network."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image
from safetensors.torch import load_file

from zdoctor.doctor.cli import main
from zdoctor.doctor.commands.check import check
from zdoctor.doctor.commands.train import train
from zdoctor.tests.doctor.train.conftest import chroma, circles, flux2, tiny

from .runs import CONFIG, SET
from .test_lycoris import LOKR

__all__ = ["chroma", "circles", "flux2", "tiny"]
TEXT = {"id": "b", "type": "local", "dataset_type": "text_embeds", "cache_dir": "cache/text"}


def test_a_lokr_with_what_a_guide_says(
    tiny: Path, circles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "config"
    folder.mkdir()
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    for file in circles.iterdir():
        (pictures / file.name).write_bytes(file.read_bytes())
    Image.new("RGB", (96, 96)).save(pictures / "small.png")
    (pictures / "small.txt").write_text("too small", encoding="utf-8")
    config = {
        **CONFIG,
        "pretrained_model_name_or_path": str(tiny),
        "output_dir": str(tmp_path / "output" / "lantern"),
        "max_train_steps": 3,
        "train_batch_size": 1,
        "base_model_precision": "int8-quanto",
        "seed": 3,
        "lora_type": "lycoris",
        "lycoris_config": "config/lycoris_config.json",
        "optimizer_config": "weight_decay=0.0,eps=1e-8",
        "optimizer_beta1": 0.9,
        "optimizer_beta2": 0.99,
        "adam_weight_decay": 0.0,
        "minimum_image_size": 0,
        "report_to": "none",
    }
    data = {**SET, "instance_data_dir": str(pictures), "resolution": 128, "minimum_image_size": 128}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "data.json").write_text(json.dumps([data, TEXT]), encoding="utf-8")
    (folder / "lycoris_config.json").write_text(json.dumps(LOKR), encoding="utf-8")
    monkeypatch.setenv("ZDOCTOR_CACHE", str(tmp_path / "cache"))
    result = train(str(folder / "config.json"))
    assert (result.stopped, result.steps) == ("finished", 3)
    told = capsys.readouterr()
    assert "minimum_image_size leaves out 1 of 7 images" in told.out + told.err
    tensors = load_file(result.lora)
    assert len(tensors) == 2 * 28
    assert tensors["diffusion_model.context_refiner.0.feed_forward.w1.lokr_w2"].abs().sum() > 0
    assert tuple(tensors["diffusion_model.layers.0.feed_forward.w1.lokr_w2"].shape) == (128, 48)
    assert tensors["diffusion_model.layers.0.attention.to_q.lokr_w2"].abs().sum() > 0


@pytest.mark.parametrize(
    ("family", "flavour", "layers"), [("chroma", "hd", 2 * 8 + 2 * 3), ("flux2", "klein-4b", 10)]
)
def test_other_families(
    family: str,
    flavour: str,
    layers: int,
    circles: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """The layers that SimpleTuner covers, of which `zdoctor check` has nothing to say."""
    model = request.getfixturevalue(family)
    config = {
        **CONFIG,
        "model_family": family,
        "model_flavour": flavour,
        "pretrained_model_name_or_path": str(model),
        "output_dir": str(tmp_path / "out"),
        "data_backend_config": "data.json",
        "max_train_steps": 2,
        "train_batch_size": 2,
        "mixed_precision": "no",
        "lora_dropout": 0.0,
        "report_to": "none",
    }
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    data = {**SET, "instance_data_dir": str(circles), "resolution": 64, "resolution_type": "pixel"}
    (tmp_path / "data.json").write_text(json.dumps([data, TEXT]), encoding="utf-8")
    monkeypatch.setenv("ZDOCTOR_CACHE", str(tmp_path / "cache"))
    result = train(str(tmp_path / "config.json"))
    assert result.steps == 2 and len(load_file(result.lora)) == 2 * layers
    report = check(str(result.lora), base=str(model))
    assert not report.findings and not report.not_judged


def test_what_is_refused_beside_is_said_of_the_run_as_it_would_be_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {
        **CONFIG,
        "pretrained_model_name_or_path": str(tmp_path / "nowhere"),
        "data_backend_config": "none.json",
    }
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    monkeypatch.setenv("ZDOCTOR_CACHE", str(tmp_path / "cache"))
    assert main(["train", str(tmp_path / "config.json")]) != 0
    said = capsys.readouterr().err
    assert "Not supported, whatever is repaired below: The config names no dataset" in said
    assert "adamw_bf16" not in said and "l2" not in said
