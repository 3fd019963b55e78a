"""What to download for a part that is a file of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from zdoctor.doctor.examine.examination import examine_config
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.tests import part_files as made


def commands(folder: Path, text: str) -> dict[str, list[str | None]]:
    """The commands that are shown, by the rule that speaks."""
    config = folder / "train.sh"
    config.write_text(text)
    report = examine_config(str(config), LiveWorld()).report
    found = [finding for finding in report.findings if finding.rule.startswith(("MDL", "KOH001"))]
    return {finding.rule: [fix.command for fix in finding.fixes] for finding in found}


FLUX = "comfyanonymous/flux_text_encoders"
ZIMAGE = "Comfy-Org/z_image_turbo split_files"


@pytest.mark.parametrize(
    ("option", "path", "command"),
    [
        ("clip_l", "gone.safetensors", f"{FLUX} clip_l.safetensors"),
        ("t5xxl", None, f"{FLUX} t5xxl_fp16.safetensors"),
        ("ae", "ae.safetensors", "black-forest-labs/FLUX.1-dev ae.safetensors"),
        (
            "pretrained_model_name_or_path",
            "flux1-schnell.safetensors",
            "black-forest-labs/FLUX.1-schnell flux1-schnell.safetensors",
        ),
    ],
)
def test_a_missing_file_of_flux(tmp_path: Path, option: str, path: str | None, command: str) -> None:
    files = {**made.flux_files(), "output_dir": "out", option: path}
    assert commands(tmp_path, made.flux_command(files)) == {"KOH001": [f"hf download {command}"]}


@pytest.mark.parametrize(
    ("option", "path", "command"),
    [
        ("text_encoder", "qwen.safetensors", [f"hf download {ZIMAGE}/text_encoders/qwen_3_4b.safetensors"]),
        ("vae", "ae.safetensors", [f"hf download {ZIMAGE}/vae/ae.safetensors"]),
        (
            "dit",
            "z_image_turbo_bf16.safetensors",
            [f"hf download {ZIMAGE}/diffusion_models/z_image_turbo_bf16.safetensors"],
        ),
        ("dit", "my_own.safetensors", []),
    ],
)
def test_a_missing_file_of_zimage(tmp_path: Path, option: str, path: str, command: list[str]) -> None:
    files = {**made.zimage_files(), "output_dir": "out", "sample_prompts": "p.txt", option: path}
    assert commands(tmp_path, made.zimage_command(files)) == {"KOH001": command}


def test_a_damaged_file_is_not_replaced_by_a_folder(tmp_path: Path) -> None:
    """Folders are of no use to these trainers."""
    half = made.write(tmp_path / "ae.safetensors", made.without(made.ae(), "decoder.mid.attn_1"))
    wrong = made.write(tmp_path / "clip.safetensors", made.t5xxl())
    files = {**made.flux_files(), "output_dir": "out", "ae": half, "clip_l": wrong}
    assert commands(tmp_path, made.flux_command(files)) == {
        "MDL001": ["hf download black-forest-labs/FLUX.1-dev ae.safetensors"],
        "MDL002": [f"hf download {FLUX} clip_l.safetensors"],
    }
