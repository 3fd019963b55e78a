"""CFG002 and CFG004 for the configs of SimpleTuner, sd-scripts and musubi-tuner, whose parsers are argparse's."""

import argparse

import pytest

from zdoctor.tests.checks.config_cases import examined

TUNER = '{"model_family": "z_image", "model_type": "lora", "learning_rate": 1e-4, "optimizer": "adamw_bf16"%s}'
SCRIPTS = """[model]
pretrained_model_name_or_path = "flux1.safetensors"
ae = "ae.safetensors"
clip_l = "c.safetensors"
t5xxl = "t.safetensors"
network_module = "networks.lora_flux"
mixed_precision = "bf16"
"""
DATASETS = """[general]
caption_extension = ".txt"
[[datasets]]
resolution = 512
[[datasets.subsets]]
image_dir = "/data"
num_repeats = 2
"""
MUSUBI = """[general]
resolution = [960, 544]
[[datasets]]
image_directory = "/data"
"""
SHELL = """accelerate launch flux_train_network.py --pretrained_model_name_or_path f.safetensors --ae a.safetensors \\
  --clip_l c.safetensors --t5xxl t.safetensors --network_module networks.lora_flux --mixed_precision bf16
"""


@pytest.mark.parametrize(
    ("path", "text", "severity", "nearest"),
    [
        ("config.json", TUNER % ', "learning-rate": 1', "error", "learning_rate"),
        ("config.json", TUNER % ', "text_encoder_precision": "no_change"', "warning", "text_encoder_1_precision"),
        ("config.json", TUNER % ', "gradient_checkpointin": true', "error", "gradient_checkpointing"),
        ("config.json", TUNER % ', "lora_ran": 16', "note", "lora_rank"),  # argparse takes it as an abbreviation
        # the text "false", an empty text and a mapping never become words of the command line
        ("config.json", TUNER % ', "gradient_checkpointin": " False"', "warning", "gradient_checkpointing"),
        ("config.json", TUNER % ', "gradient_checkpointin": ""', "warning", "gradient_checkpointing"),
        ("config.json", TUNER % ', "gradient_checkpointin": {"a": 1}', "warning", "gradient_checkpointing"),
        ("config.json", TUNER % ', "gradient_checkpointin": false', "error", "gradient_checkpointing"),
        ("config.json", TUNER % ', "--validation_torch_compile": "false"', "warning", None),
        (
            "config.env",
            "MODEL_FAMILY=z_image\nTRAINER_EXTRA_ARGS='--gradient_checkpointin=false'\n",
            "error",
            "gradient_checkpointing",
        ),
        ("config.env", "MODEL_FAMILY=z_image\nexport USE_XFORMERS=true\n", "warning", None),
        ("c.toml", SCRIPTS + "learing_rate = 1e-4\n", "warning", "learning_rate"),
        ("c.toml", SCRIPTS + "network_dmi = 16\n", "warning", "network_dim"),
        ("d.toml", DATASETS + "num_repeat = 3\n", "error", "num_repeats"),
        ("d.toml", DATASETS.replace("caption_extension", "caption_extention"), "error", "caption_extension"),
        (
            "m.toml",
            MUSUBI.replace("image_directory", "image_directory = '/e'\nimage_dirctory"),
            "error",
            "image_directory",
        ),
        ("run.sh", SHELL.replace("--ae", "--learnin_rate 1 --ae"), "error", "learning_rate"),
        ("run.sh", SHELL.replace("--ae", "--blocks_to_swa 1 --ae"), "note", "blocks_to_swap"),
    ],
)
def test_unknown_keys(path: str, text: str, severity: str, nearest: str) -> None:
    (finding,) = examined(text, "CFG002", path=path)
    assert (finding.severity, finding.evidence["nearest"]) == (severity, nearest)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("config.json", TUNER % ""),
        (
            "config.json",
            TUNER % ', "validation_steps": 5, "repeats": 3, "--lora_rank": 4, "lr_scheduler": "cosine_with_warmup"',
        ),
        ("config.json", TUNER % ', "model_flavour": "anything", "report_to": null'),
        ("c.toml", SCRIPTS + 'optimizer_type = "lion8bit"\n[own_section]\nnetwork_dim = 4\n'),
        (
            "c.toml",
            SCRIPTS + 'dynamo_backend = "no"\nzero_stage = "auto"\n',
        ),  # of torch_compile and deepspeed, both off
        ("d.toml", DATASETS),
        ("m.toml", MUSUBI),
        ("run.sh", SHELL),
        # set by who starts the script
        ("run.sh", SHELL.replace("bf16", '"$PRECISION"')),
        ("run.ps1", SHELL.replace("bf16", "$env:PRECISION").replace("\\", "`")),
        ("run.bat", SHELL.replace("bf16", "%PRECISION%").replace("\\", "^")),
    ],
)
def test_healthy_configs_stay_silent(path: str, text: str) -> None:
    assert not examined(text, "CFG001", "CFG002", "CFG004", path=path)


@pytest.mark.parametrize(
    ("path", "text", "meant", "when"),
    [
        ("config.json", TUNER.replace("z_image", "z-image") % "", "z_image", "at the start"),
        ("config.json", TUNER % ', "base_model_precision": "int8-quant"', "int8-quanto", "at the start"),
        ("config.json", TUNER % ', "lr_scheduler": "cosin"', "cosine", "at the start"),
        ("c.toml", SCRIPTS.replace("bf16", "bf61"), "bf16", "when the setting is used"),
        (
            "c.toml",
            SCRIPTS + 'torch_compile = true\ndynamo_backend = "inductr"\n',
            "inductor",
            "when the setting is used",
        ),
        ("run.sh", SHELL.replace("bf16", "bf61"), "bf16", "at the start"),
    ],
)
def test_values_that_the_parser_refuses(path: str, text: str, meant: str, when: str) -> None:
    (finding,) = examined(text, "CFG004", path=path)
    assert finding.severity == ("warning" if path == "c.toml" else "error")  # no parser sees it
    assert finding.args["meant"] == meant
    assert when in finding.consequence()


def test_argparse_does_what_the_findings_say() -> None:
    """An unknown option stops it, a name that begins one option is that option, a preset value passes unseen."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("--lora_rank", type=int)
    parser.add_argument("--precision", choices=["no", "bf16"])
    assert parser.parse_args(["--lora_ran", "4"]).lora_rank == 4
    with pytest.raises(argparse.ArgumentError):
        parser.parse_args(["--precision", "bf61"])
    with pytest.raises((SystemExit, argparse.ArgumentError)):
        parser.parse_args(["--lora-rank", "4"])
    assert parser.parse_args([], namespace=argparse.Namespace(precision="bf61", unknown=1)).precision == "bf61"


def test_what_the_gui_writes_for_no_script() -> None:
    """kohya_gui/lora_gui.py writes noise_offset_type always, epoch beside the steps that it computes from it."""
    written = SCRIPTS + 'noise_offset_type = "Original"\nepoch = 4\nmax_train_steps = 100\n'
    assert not examined(written, "CFG002", path="c.toml")
    (finding,) = examined(written.replace('noise_offset_type = "Original"', ""), "CFG002", path="c.toml")
    assert finding.evidence["nearest"] == "max_train_epochs"
