"""Whose config a text is."""

from __future__ import annotations

import pytest

from zdoctor.doctor.trainers.read import recognise

LAUNCH = "accelerate launch --mixed_precision bf16 {} --config_file config.toml\n"


@pytest.mark.parametrize(
    ("script", "trainer"),
    [
        ("src/musubi_tuner/zimage_train_network.py", "musubi-tuner"),
        ("flux_kontext_train_network.py", "musubi-tuner"),
        (r".\src\musubi_tuner\wan_train_network.py", "musubi-tuner"),
        ("src/musubi_tuner/cache_latents.py --dataset_config data.toml", "musubi-tuner"),
        ("newest_model_cache_text_encoder_outputs.py --dataset_config data.toml", "musubi-tuner"),
        ("flux_train_network.py --cache_latents", "sd-scripts"),
        ("/home/me/sd-scripts/flux_train.py", "sd-scripts"),
        ("train_network.py", "sd-scripts"),
        ("./sdxl_train.py", "sd-scripts"),
        ("train_db.py", "sd-scripts"),
        ("sdxl_train_textual_inversion.py", "sd-scripts"),
        ("anima_train_network.py", "sd-scripts"),
        ("my_train_network.py", None),
        ("serve.py", None),
    ],
)
def test_a_launch_script_is_known_by_what_it_starts(script: str, trainer: str | None) -> None:
    """Also where all of the options lie in a file that it names."""
    known = recognise(LAUNCH.format(script), "shell")
    assert (known and known.name) == trainer


def test_a_name_that_others_use_is_not_enough() -> None:
    assert recognise("python train_network.py --epochs 3\n", "shell") is None


def test_a_dataset_of_videos_is_musubis_whatever_its_keys_are_called() -> None:
    known = recognise('[[datasets]]\nvideo_dir = "v"\nimage_dir = "i"\n', "toml")
    assert known is not None and known.name == "musubi-tuner"


def test_a_full_fine_tune_in_toml_is_known_by_its_options() -> None:
    """It names neither a network nor a dataset, where these stand on the command line."""
    text = '[model_arguments]\npretrained_model_name_or_path = "a.safetensors"\n[saving]\nsave_model_as = "ckpt"\n'
    known = recognise(text, "toml")
    assert known is not None and known.name == "sd-scripts"
    assert recognise('pretrained_model_name_or_path = "a"\nreport_to = "wandb"\n', "toml") is None
