"""`zdoctor train` on configs of sd-scripts and musubi-tuner, whose models are files of parts."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from safetensors.torch import load_file

from zdoctor.doctor.cli import main
from zdoctor.tests.part_files import flux_command, sdxl_command, zimage_command
from zdoctor.tests.sdxl import trainable_sdxl

from . import parts as made

COMMIT = "c" * 40
PLAIN = {
    "mixed_precision": "no",
    "output_dir": "out",
    "output_name": "cat",
    "max_train_steps": 2,
    "learning_rate": "1e-3",
    "dataset_config": "sets.toml",
    "seed": 42,
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, circles: Path) -> Path:
    """A working directory with two pictures, a file of datasets for either trainer and an empty hub cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    data = tmp_path / "data"
    data.mkdir()
    for name in ("0.png", "0.txt", "1.png", "1.txt"):
        shutil.copy(circles / name, data)
    return tmp_path


def keep(here: Path, repo: str, folder: Path, inside: str = "") -> None:
    """A tokenizer as the hub client keeps it."""
    root = here / "hub" / f"models--{repo.replace('/', '--')}"
    shutil.copytree(folder, root / "snapshots" / COMMIT / inside)
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text(COMMIT)


def sets(text: str) -> None:
    Path("sets.toml").write_text(text)


def trained(text: str, capsys: pytest.CaptureFixture[str]) -> Mapping[str, object]:
    Path("train.sh").write_text(text)
    code = main(["train", "train.sh"])
    said = capsys.readouterr()
    assert code == 0, said.out + said.err
    assert "Finished: 2 steps." in said.out
    return load_file(str(next(Path("out").rglob("cat.safetensors"))))


def test_flux_by_sd_scripts(here: Path, flux: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = made.flux_model(here / "model", flux)
    files = made.flux_parts(model, here / "parts")
    options = {
        "pretrained_model_name_or_path": files["transformer"],
        "clip_l": files["text_encoder"],
        "t5xxl": files["text_encoder_2"],
        "ae": files["vae"],
        "network_train_unet_only": True,
        "model_prediction_type": "raw",
    }
    subset = '[[datasets.subsets]]\nimage_dir = "data"\ncaption_extension = ".txt"\n'
    sets(f"[[datasets]]\nresolution = 64\nbatch_size = 1\n{subset}")
    text = flux_command({**PLAIN, **options})
    Path("train.sh").write_text(text)
    assert main(["train", "train.sh"]) == 1
    said = capsys.readouterr()
    assert "MDL007" in said.out + said.err and "hf download google/t5-v1_1-xxl" in said.out + said.err
    keep(here, "openai/clip-vit-large-patch14", model / "tokenizer")
    keep(here, "google/t5-v1_1-xxl", model / "tokenizer_2")
    keys = trained(text, capsys)
    assert "transformer.single_transformer_blocks.1.proj_mlp.lora_A.weight" in keys


def test_chroma_by_sd_scripts(here: Path, chroma: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = made.chroma_model(here / "model", chroma)
    files = made.chroma_parts(model, here / "parts")
    keep(here, "google/t5-v1_1-xxl", model / "tokenizer")
    options = {
        "pretrained_model_name_or_path": files["transformer"],
        "model_type": "chroma",
        "t5xxl": files["text_encoder"],
        "ae": files["vae"],
        "apply_t5_attn_mask": True,
        "network_train_unet_only": True,
        "model_prediction_type": "raw",
        "timestep_sampling": "sigmoid",
        "blocks_to_swap": 18,
    }
    subset = '[[datasets.subsets]]\nimage_dir = "data"\ncaption_extension = ".txt"\n'
    sets(f"[[datasets]]\nresolution = 64\nbatch_size = 2\n{subset}")
    Path("train.sh").write_text(flux_command({**PLAIN, **options}))
    assert main(["train", "train.sh"]) == 2
    assert "Chroma is trained with apply_t5_attn_mask and guidance_scale 0" in capsys.readouterr().err
    keys = trained(flux_command({**PLAIN, **options, "guidance_scale": 0}), capsys)
    assert len(keys) == 2 * (2 * 12 + 2 * 5)
    assert "transformer.single_transformer_blocks.1.proj_mlp.lora_A.weight" in keys


def test_sdxl_by_sd_scripts(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From a folder, with what sd-scripts tells the UNet of sizes; what it has and the runner has not is refused."""
    model = trainable_sdxl(here / "model", (1, 2, 10))
    options = {
        "pretrained_model_name_or_path": model,
        "min_snr_gamma": 5,
        "noise_offset": 0.05,
        "network_dim": 4,
        "network_alpha": 2,
        "network_args": ["conv_dim=2", "conv_alpha=1"],
    }
    sets(
        "[[datasets]]\nresolution = 64\nbatch_size = 2\nenable_bucket = true\nbucket_reso_steps = 32\n"
        'min_bucket_reso = 32\n[[datasets.subsets]]\nimage_dir = "data"\ncaption_extension = ".txt"\n'
    )
    lacking = {"multires_noise_iterations": 6, "max_token_length": 225, "v_pred_like_loss": 0.5}
    Path("train.sh").write_text(sdxl_command({**PLAIN, **options, **lacking}))
    assert main(["train", "train.sh"]) == 2
    said = capsys.readouterr().err
    assert all(name in said for name in (*lacking, "network_train_unet_only"))
    options["network_train_unet_only"] = True
    Path("train.sh").write_text(sdxl_command({**PLAIN, **options, "pretrained_model_name_or_path": "xl.ckpt"}))
    assert main(["train", "train.sh"]) == 2 and "from_single_file('xl.ckpt')" in capsys.readouterr().err
    keys = trained(sdxl_command({**PLAIN, **options}), capsys)
    name = "lora_unet_input_blocks_4_1_transformer_blocks_0_attn1_to_q"
    assert {f"{name}.lora_down.weight", f"{name}.alpha", "lora_unet_input_blocks_1_0_in_layers_2.alpha"} <= set(keys)
    assert not any("time_embed" in key or "input_blocks_0_" in key for key in keys)


def test_zimage_by_musubi_tuner(here: Path, tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = made.zimage_model(here / "model", tiny)
    files = made.zimage_parts(model, here / "parts")
    keep(here, "Tongyi-MAI/Z-Image", model / "tokenizer", "tokenizer")
    sets('[general]\nresolution = [64, 64]\ncaption_extension = ".txt"\n[[datasets]]\nimage_directory = "data"\n')
    options = {"dit": files["transformer"], "text_encoder": files["text_encoder"], "vae": files["vae"]}
    keys = trained(zimage_command({**PLAIN, **options}), capsys)
    assert "diffusion_model.layers.0.attention.to_q.lora_A.weight" in keys


def test_kontext_by_musubi_tuner(here: Path, flux: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The transformer is a numbered set in diffusers' names; the tokenizers are those of a diffusers model."""
    model = made.flux_model(here / "model", flux)
    files = made.flux_parts(model, here / "parts")
    for name in ("tokenizer", "tokenizer_2"):
        shutil.copytree(model / name, here / "whole" / name)
    keep(here, "black-forest-labs/FLUX.1-dev", here / "whole")
    shutil.copytree(here / "data", here / "controls", ignore=shutil.ignore_patterns("*.txt"))
    general = '[general]\nresolution = [64, 64]\ncaption_extension = ".txt"\n'
    sets(f'{general}[[datasets]]\nimage_directory = "data"\ncontrol_directory = "controls"\n')
    options = {
        "dit": made.shards(here / "parts", made.tensors_of(model / "transformer")),
        "text_encoder1": files["text_encoder_2"],
        "text_encoder2": files["text_encoder"],
        "vae": files["vae"],
        "network_module": "networks.lora_flux",
    }
    text = zimage_command({**PLAIN, **options}).replace("zimage_train", "flux_kontext_train")
    assert any("single_transformer_blocks.1" in key for key in trained(text, capsys))
