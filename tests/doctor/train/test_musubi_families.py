"""Qwen-Image and FLUX.2 by musubi-tuner's configs: parts in files, trained as the folder of the same weights is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from zdoctor.doctor.cli import main
from zdoctor.doctor.commands.check import check
from zdoctor.tests.often import often
from zdoctor.tests.part_files import musubi_command

from . import musubi_parts as made
from .patient import DATASET, go, run_with
from .test_component_files_command import PLAIN, here, keep, sets

__all__ = ["here"]

GENERAL = '[general]\nresolution = [64, 64]\ncaption_extension = ".txt"\n[[datasets]]\nimage_directory = "data"\n'


def commanded(architecture: str, files: dict[str, Path], capsys: pytest.CaptureFixture[str], **options: Any) -> Any:
    """The LoRA of a run, by a command of musubi-tuner."""
    Path("train.sh").write_text(musubi_command(architecture, {**PLAIN, **files, **options}))
    code = main(["train", "train.sh"])
    said = capsys.readouterr()
    assert code == 0, said.out + said.err
    report = check("out/cat/cat.safetensors", base=str(Path("model").resolve()))
    # diffusers, ComfyUI and the trainers apply all of it; the last block's answer to a prompt is asked by nobody
    assert {finding.rule for finding in report.findings} <= {"LOR004"}
    return load_file("out/cat/cat.safetensors"), said.out


@pytest.mark.parametrize(
    ("architecture", "dev"), [pytest.param("flux2_klein_4b", False, marks=pytest.mark.thorough), ("flux2", True)]
)
def test_flux2(
    architecture: str, dev: bool, here: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every Linear of its blocks, none of the modulation, which has no part in them; with a control image or two."""
    model = made.flux2_model(here / "model", request.getfixturevalue("flux2_dev" if dev else "flux2"), dev=dev)
    files = made.files_of(model, here / "parts", "Flux2Transformer2DModel", None)
    repo = "black-forest-labs/FLUX.2-dev" if dev else "Qwen/Qwen3-4B"
    keep(here, repo, model / "tokenizer", "tokenizer" if dev else "")
    sets(GENERAL)
    tensors, said = commanded(architecture, files, capsys, timestep_sampling="flux2_shift", network_alpha=2)
    assert "Finished: 2 steps." in said and "covers query, key and value each on its own" in said
    assert len(tensors) == 2 * (12 + 2)
    told = json.loads(Path("out/cat/run.json").read_text())["settings"]
    assert told["timestep_sampling.density"]["shift"] == [256.0, 0.5, 4096.0, 1.15]
    assert told["loss.embedded_guidance"] == 1.0 and told["latent_mean"]

    Path("before").mkdir()
    for name, size in (("0.png", (100, 40)), ("1_0.png", (70, 90)), ("1_2.png", (50, 50))):
        Image.new("RGB", size, "red").save(Path("before") / name)
    sets(f'{GENERAL}control_directory = "before"\nno_resize_control = true\n')
    shutil.rmtree("out")
    tensors, said = commanded(architecture, files, capsys)
    assert "Finished: 2 steps." in said


@pytest.mark.parametrize("architecture", often(["qwen_image", "qwen_image_edit", "qwen_image_edit_plus"], 2))
def test_qwen_image(architecture: str, here: Path, qwen_image: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every Linear of its blocks, the modulation's too: what musubi-tuner leaves out by "_mod_" has no such name."""
    model = made.qwen_image_model(here / "model", qwen_image)
    files = made.files_of(model, here / "parts", "QwenImageTransformer2DModel", made.QWEN_NAMES)
    keep(here, "Qwen/Qwen-Image", model / "tokenizer", "tokenizer")
    sets(GENERAL)
    if architecture != "qwen_image":
        Path("train.sh").write_text(musubi_command(architecture, {**PLAIN, **files}))
        assert main(["train", "train.sh"]) == 2
        assert "Qwen-Image-Edit needs the control_directory of each dataset" in capsys.readouterr().err
        shutil.copytree("data", "before", ignore=shutil.ignore_patterns("*.txt"))
        sets(f'{GENERAL}control_directory = "before"\n')
    tensors, said = commanded(architecture, files, capsys, timestep_sampling="qwen_shift")
    assert "Finished: 2 steps." in said
    assert len(tensors) == 2 * 2 * 14 and any("img_mod.1" in name for name in tensors)
    told = json.loads(Path("out/cat/run.json").read_text())["settings"]
    assert told["timestep_sampling.density"]["shift"] == [256.0, 0.5, 8192.0, 0.9] and told["latent_mean"]


@pytest.mark.parametrize(
    "family",
    [
        "flux2",
        *(pytest.param(name, marks=pytest.mark.thorough) for name in ("qwen_image", "qwen_image_edit", "flux2_dev")),
    ],
)
def test_files_train_as_the_folder(
    family: str, request: pytest.FixtureRequest, circles: Path, tmp_path: Path
) -> None:
    """Losses and LoRA to the bit, with the text encoder, the VAE and the transformer from files of their own."""
    whole = request.getfixturevalue("qwen_image" if family.startswith("qwen") else family)
    if family.startswith("qwen"):
        model = made.qwen_image_model(tmp_path / "model", whole)
        files = made.files_of(model, tmp_path / "parts", "QwenImageTransformer2DModel", made.QWEN_NAMES)
        architecture = family
    else:
        model = made.flux2_model(tmp_path / "model", whole, dev=family.endswith("dev"))
        files = made.files_of(model, tmp_path / "parts", "Flux2Transformer2DModel", None)
        architecture = "flux2 in diffusers" if family.endswith("dev") else "flux2_klein_4b in diffusers"
    folders = (str(circles),) if family == "qwen_image_edit" else ()
    run = run_with(
        architecture=architecture, steps=2, quantization=None, datasets=(changed_set(folders),), latent_mean=True
    )
    ours = go(run, model, circles, tmp_path / "folder", fresh=True)
    parts = {"text_encoder": files["text_encoder"], "vae": files["vae"], "tokenizer": model / "tokenizer"}
    theirs = go(run, files["dit"], circles, tmp_path / "files", fresh=True, components=parts)
    assert ours.losses == theirs.losses
    one, other = load_file(ours.lora), load_file(theirs.lora)
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def changed_set(folders: tuple[str, ...]) -> Any:
    from dataclasses import replace

    return replace(DATASET, control_folders=folders)
