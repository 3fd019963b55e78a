"""`zdoctor train` on configs of every model it trains: the checks are green, and a LoRA comes out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from safetensors.torch import load_file

from zdoctor.doctor.cli import main
from zdoctor.doctor.examine.examination import examine_config
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.tests.flux2 import TINY, Flux2Transformer2DModel
from zdoctor.tests.often import often
from zdoctor.tests.sdxl import trainable_sdxl

from .parts import transformer_tensors, write
from .weights.test_single_file_checkpoint import single


def config(base: Path, data: Path, architecture: str, **changes: Any) -> str:
    process: dict[str, Any] = {
        "type": "sd_trainer",
        "training_folder": changes.pop("output", "out"),
        "device": "cpu",
        "training_seed": 42,
        "network": {"type": "lora", "linear": 4, "linear_alpha": 4},
        "save": {"dtype": "bf16", "save_every": 50},
        "datasets": [
            {"folder_path": str(data), "caption_ext": "txt", "resolution": [64], "cache_latents_to_disk": True}
            | changes.pop("dataset", {})
        ],
        "train": {
            "batch_size": 2,
            "steps": 2,
            "lr": 1e-3,
            "optimizer": "adamw",
            "dtype": "float32",
            "noise_scheduler": "flowmatch",
            "timestep_type": "flux_shift",
            "cache_text_embeddings": True,
        }
        | changes.pop("train", {}),
        "model": {"name_or_path": str(base), "arch": architecture, "quantize": True, **changes.pop("model", {})},
        "sample": {"sample_every": 50, "width": 64, "height": 64, "sample_steps": 2, "guidance_scale": 4}
        | changes.pop("sample", {"prompts": ["a b"]}),
    }
    Path("config.json").write_text(
        json.dumps({"job": "extension", "config": {"name": "circles", "process": [process]}})
    )
    return "config.json"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_only_what_the_runner_takes_is_offered_to_it(here: Path) -> None:
    name = config(here, here, "flux")
    assert examine_config(name, LiveWorld(), ()).report.trainable
    Path("train.toml").write_text('pretrained_model_name_or_path = "a"\nclip_l = "b"\nt5xxl = "c"\nae = "d"\n')
    other = examine_config("train.toml", LiveWorld(), (), trainer="sd-scripts")
    assert other.reading.runs and not other.report.trainable


def trained(words: str, capsys: pytest.CaptureFixture[str]) -> set[str]:
    """The keys of the LoRA that a run of two steps leaves."""
    code = main(["train", words])
    said = capsys.readouterr()
    assert code == 0, said.out + said.err
    assert "Finished: 2 steps." in said.out
    assert len(list(Path("out/circles/samples").glob("*.png"))) == 2
    return set(load_file("out/circles/circles.safetensors"))


@pytest.mark.thorough
def test_flux2_dev(here: Path, flux2_dev: Path, circles: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = trained(config(flux2_dev, circles, "flux2"), capsys)
    assert "transformer.transformer_blocks.0.ff_context.linear_in.lora_A.weight" in keys


@pytest.mark.parametrize("number", often(["4b", "9b"]))
def test_flux2_klein(here: Path, flux2: Path, circles: Path, capsys: pytest.CaptureFixture[str], number: str) -> None:
    of_images = {"dataset": {"control_path": str(circles)}, "sample": {"prompts": [f"a --ctrl_img {circles}/0.png"]}}
    keys = trained(config(flux2, circles, f"flux2_klein_{number}", **(of_images if number == "4b" else {})), capsys)
    assert "transformer.single_transformer_blocks.0.attn.to_qkv_mlp_proj.lora_A.weight" in keys


@pytest.mark.parametrize(
    "name", [pytest.param("qwen_image_edit", marks=pytest.mark.thorough), "qwen_image_edit_plus"]
)
def test_qwen_image_edit(
    here: Path, qwen_image_edit: Path, circles: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    gray = here / "gray"
    gray.mkdir()
    for number in range(6):
        Image.open(circles / f"{number}.png").convert("L").save(gray / f"{number}.png")
    several = {"control_path_1": str(gray), "control_path_2": str(gray)}
    sample = f"a b --ctrl_img {gray}/0.png --ctrl_img_2 {gray}/1.png"
    words = config(
        qwen_image_edit,
        circles,
        name,
        dataset=several if name.endswith("plus") else {"control_path": str(gray)},
        model={"model_kwargs": {"match_target_res": True}},
        sample={"prompts": [sample]},
    )
    assert examine_config(words, LiveWorld(), ()).report.trainable
    assert "diffusion_model.transformer_blocks.0.attn.to_q.lora_A.weight" in trained(words, capsys)


@pytest.mark.thorough
def test_flux2_klein_from_its_authors_own_file(
    here: Path, flux2: Path, circles: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of one head, as wide as the published ones."""
    wide = {**TINY, "attention_head_dim": 128, "num_attention_heads": 1, "axes_dims_rope": [32, 32, 32, 32]}
    whole = Path(shutil.copytree(flux2, here / "whole", ignore=shutil.ignore_patterns("transformer")))
    Flux2Transformer2DModel(**wide).save_pretrained(whole / "transformer")
    file = write(here / "klein.safetensors", transformer_tensors(whole / "transformer", "Flux2Transformer2DModel"))
    words = config(file, circles, "flux2_klein_4b", model={"extras_name_or_path": str(whole)})
    assert "transformer.transformer_blocks.1.attn.to_q.lora_A.weight" in trained(words, capsys)


@pytest.mark.thorough
def test_chroma(here: Path, chroma: Path, circles: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = trained(config(chroma, circles, "chroma"), capsys)
    assert "transformer.single_transformer_blocks.0.proj_mlp.lora_A.weight" in keys


def test_sdxl(here: Path, circles: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As deep as it is published, by which the checks know it."""
    of_noise = {"noise_scheduler": "ddpm", "timestep_type": "sigmoid", "min_snr_gamma": 5.0, "noise_offset": 0.03}
    keys = trained(config(trainable_sdxl(here / "model", (1, 2, 10)), circles, "sdxl", train=of_noise), capsys)
    assert "lora_unet_input_blocks_4_1_transformer_blocks_0_attn1_to_q.lora_down.weight" in keys


def test_flux(here: Path, flux: Path, circles: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = trained(config(flux, circles, "flux"), capsys)
    assert "transformer.single_transformer_blocks.0.proj_mlp.lora_A.weight" in keys


@pytest.mark.thorough
def test_kontext(here: Path, flux: Path, circles: Path, capsys: pytest.CaptureFixture[str]) -> None:
    controls = Path(shutil.copytree(circles, here / "controls"))
    words = config(
        flux,
        circles,
        "flux_kontext",
        dataset={"control_path": str(controls)},
        sample={"prompts": [f"a b --ctrl_img {controls / '0.png'}"]},
    )
    assert "transformer.transformer_blocks.1.attn.add_k_proj.lora_B.weight" in trained(words, capsys)


def test_zimage_from_a_single_file(here: Path, tiny: Path, circles: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = single(tiny, here / "z.safetensors")
    words = config(file, circles, "zimage", model={"extras_name_or_path": str(tiny)})
    assert "diffusion_model.layers.0.attention.to_q.lora_A.weight" in trained(words, capsys)


def test_qwen_image(here: Path, qwen_image: Path, circles: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = trained(config(qwen_image, circles, "qwen_image"), capsys)
    assert "diffusion_model.transformer_blocks.0.attn.to_q.lora_A.weight" in keys
