"""SDXL from one file that holds the UNet, both CLIPs and the VAE: model, losses and LoRA are the folder's."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.pipelines.stable_diffusion_xl.pipeline_stable_diffusion_xl import StableDiffusionXLPipeline
from safetensors.torch import load_file, save_file
from transformers import CLIPTextModel, CLIPTextModelWithProjection

from zdoctor.doctor.cli import main
from zdoctor.doctor.train.components.component_files import component_config
from zdoctor.doctor.train.components.text_encoder import load_text_encoder
from zdoctor.doctor.train.components.vae import VaeFiles
from zdoctor.doctor.train.transformer.load_transformer import build_empty_transformer, fill_transformer
from zdoctor.tests.part_files import sdxl_command

from . import sdxl_file as made
from .parts import same
from .patient import go, run_with
from .test_command_families import config
from .test_component_files_command import PLAIN, here, keep, sets

__all__ = ["here"]
CPU = torch.device("cpu")
FACTORS: dict[str, Any] = {"scaling_factor": 0.13025, "shift_factor": None}
ENCODERS: dict[str, Any] = {"text_encoder": CLIPTextModel, "text_encoder_2": CLIPTextModelWithProjection}


@pytest.fixture(scope="module")
def pair(sdxl: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folder and the file. Read only."""
    folder = tmp_path_factory.mktemp("sdxl-file")
    model = made.sdxl_model(folder / "model", sdxl)
    return model, made.sdxl_file(model, folder / "xl.safetensors")


def test_every_part_is_that_of_the_folder_and_of_diffusers(pair: tuple[Path, Path]) -> None:
    model, file = pair
    pipe: Any = StableDiffusionXLPipeline.from_single_file(str(file), config=str(model), local_files_only=True)
    loaded = []
    for place, weights in ((model / "unet", model / "unet"), (file, file)):
        unet = build_empty_transformer(place)
        fill_transformer(unet, weights, quantization="none", adapter={}, dtype=torch.float32, device=CPU)
        loaded.append(unet)
    assert same(*loaded) and same(loaded[1], pipe.unet)
    told = json.loads((model / "unet" / "config.json").read_text())
    assert {
        key: told[key] for key, value in component_config(file, "UNet2DConditionModel").items() if key in told
    } == {key: value for key, value in component_config(file, "UNet2DConditionModel").items() if key in told} | {
        "sample_size": 8
    }
    vae, theirs = (
        VaeFiles(file, "AutoencoderKL", FACTORS).load(CPU),
        VaeFiles(model / "vae", "AutoencoderKL").load(CPU),
    )
    assert same(vae.model, theirs.model) and same(vae.model, pipe.vae) and vae.shrink == theirs.shrink
    pixels = torch.rand(1, 3, 64, 64)
    assert torch.equal(vae.encode(pixels), theirs.encode(pixels))
    for name, make in ENCODERS.items():
        ours, folder = (
            load_text_encoder(make, place, name, "none", torch.float32, CPU) for place in (file, model / name)
        )
        assert same(ours, folder) and same(ours, getattr(pipe, name))
        ids = torch.tensor([[0, 3, 4, 2, 1]])
        one, other = (encoder(ids, output_hidden_states=True) for encoder in (ours, folder))
        assert torch.equal(one.hidden_states[-2], other.hidden_states[-2]) and torch.equal(one[0], other[0])


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [None, "int8"])
def test_it_trains_as_the_folder(pair: tuple[Path, Path], circles: Path, tmp_path: Path, kind: str | None) -> None:
    model, file = pair
    run = run_with(architecture="sdxl", steps=2, quantization=kind, noise_scheduler="ddpm")
    ours = go(run, model, circles, tmp_path / "folder", fresh=True)
    parts = {**dict.fromkeys(("text_encoder", "text_encoder_2", "vae"), file)}
    parts |= {name: model / name for name in ("tokenizer", "tokenizer_2")}
    theirs = go(run, file, circles, tmp_path / "file", fresh=True, components=parts)
    assert ours.losses == theirs.losses
    one, other = load_file(ours.lora), load_file(theirs.lora)
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("trainer", [pytest.param("ai-toolkit", marks=pytest.mark.thorough), "sd-scripts"])
def test_by_a_config(here: Path, sdxl: Path, circles: Path, capsys: pytest.CaptureFixture[str], trainer: str) -> None:
    """Checked, and trained; a file without one of its tensors, and one of another model, end the start."""
    model = made.sdxl_model(here / "model", sdxl, (1, 2, 10))
    file = made.sdxl_file(model, here / "xl.safetensors")
    shutil.rmtree(model / "unet")
    if trainer == "ai-toolkit":
        of_noise = {"noise_scheduler": "ddpm", "timestep_type": "sigmoid"}
        words = config(file, circles, "sdxl", train=of_noise)
    else:
        sets('[[datasets]]\nresolution = 64\n[[datasets.subsets]]\nimage_dir = "data"\ncaption_extension = ".txt"\n')
        options = {"pretrained_model_name_or_path": file, "network_train_unet_only": True, "network_dim": 4}
        words = "train.sh"
        Path(words).write_text(sdxl_command({**PLAIN, **options}))
    assert main(["train", words]) == 1
    said = capsys.readouterr()
    assert "MDL007" in said.out + said.err and "stable-diffusion-xl-base-1.0" in said.out + said.err
    whole = here / "tokenizers"
    for name in ("tokenizer", "tokenizer_2"):
        shutil.copytree(model / name, whole / name)
    keep(here, "stabilityai/stable-diffusion-xl-base-1.0", whole)
    code = main(["train", words])
    said = capsys.readouterr()
    assert code == 0, said.out + said.err
    assert "Finished: 2 steps." in said.out
    keys = load_file(str(next(path for path in Path("out").rglob("c*.safetensors"))))
    assert any(key.startswith("lora_unet_input_blocks_4_1_transformer_blocks_0_attn1_to_q") for key in keys)
    held = load_file(file)
    held.pop("conditioner.embedders.1.model.text_projection")
    save_file(held, file)
    shutil.rmtree("out")
    assert main(["train", words]) == 1
    said = capsys.readouterr()
    assert "text_projection" in said.out + said.err
