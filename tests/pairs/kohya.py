"""Patients of kohya's trainers: a FLUX.1-dev LoRA by sd-scripts, a Z-Image LoRA by musubi-tuner; their faults."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from zdoctor.tests import part_files as made
from zdoctor.tests.machines import PACKAGES
from zdoctor.tests.pairs.common import behind, cut, edit
from zdoctor.tests.pairs.patient import Fault, Patient, dataset

FLUX_SCRIPT = """\
accelerate launch --mixed_precision bf16 flux_train_network.py \\
  --pretrained_model_name_or_path models/flux1-dev.safetensors \\
  --clip_l models/clip_l.safetensors \\
  --t5xxl models/t5xxl.safetensors \\
  --ae models/ae.safetensors \\
  --dataset_config data.toml \\
  --output_dir output \\
  --output_name testarossa \\
  --mixed_precision bf16 \\
  --save_precision bf16 \\
  --network_module networks.lora_flux \\
  --network_dim 16 \\
  --network_alpha 16 \\
  --network_args train_blocks=single \\
  --optimizer_type adamw8bit \\
  --learning_rate 1e-4 \\
  --lr_scheduler constant_with_warmup \\
  --lr_warmup_steps 10 \\
  --max_train_steps 2000 \\
  --guidance_scale 1.0 \\
  --model_prediction_type raw \\
  --timestep_sampling flux_shift \\
  --fp8_base \\
  --blocks_to_swap 20 \\
  --gradient_checkpointing \\
  --cache_latents_to_disk \\
  --cache_text_encoder_outputs \\
  --sample_prompts prompts.txt \\
  --sample_every_n_steps 250 \\
  --sdpa
"""
FLUX_DATA = """\
[general]
caption_extension = ".txt"
enable_bucket = true

[[datasets]]
resolution = 256
batch_size = 1
bucket_reso_steps = 64

[[datasets.subsets]]
image_dir = "data/faces"
num_repeats = 1
"""
ZIMAGE_SCRIPT = """\
accelerate launch --mixed_precision bf16 zimage_train_network.py \\
  --dit models/z_image.safetensors \\
  --text_encoder models/qwen.safetensors \\
  --vae models/ae.safetensors \\
  --dataset_config data.toml \\
  --output_dir output \\
  --output_name testarossa \\
  --mixed_precision bf16 \\
  --network_module networks.lora_zimage \\
  --network_dim 16 \\
  --network_alpha 16 \\
  --optimizer_type adamw8bit \\
  --learning_rate 1e-4 \\
  --lr_scheduler constant \\
  --max_train_steps 2000 \\
  --timestep_sampling shift \\
  --weighting_scheme none \\
  --discrete_flow_shift 2.0 \\
  --fp8_base \\
  --fp8_scaled \\
  --blocks_to_swap 20 \\
  --gradient_checkpointing \\
  --sample_prompts prompts.txt \\
  --sample_every_n_steps 250 \\
  --sdpa
"""
ZIMAGE_DATA = """\
[general]
resolution = [256, 256]
caption_extension = ".txt"
batch_size = 1
enable_bucket = true

[[datasets]]
image_directory = "data/faces"
cache_directory = "cache"
num_repeats = 1
"""
OWN_PACKAGES = {"library": "0.0.0", "voluptuous": "0.15.2", "musubi_tuner": "0.2.0"}
FLUX_FILES = {"pretrained_model_name_or_path": "flux1-dev", "clip_l": "clip_l", "t5xxl": "t5xxl", "ae": "ae"}
ZIMAGE_FILES = {"dit": "z_image", "text_encoder": "qwen", "vae": "ae"}


def flux(root: Path) -> Patient:
    patient = _patient(root, FLUX_SCRIPT, FLUX_DATA)
    for option, name in FLUX_FILES.items():
        os.symlink(made.flux_files()[option], root / "job" / "models" / f"{name}.safetensors")
    return patient


def zimage(root: Path) -> Patient:
    patient = _patient(root, ZIMAGE_SCRIPT, ZIMAGE_DATA)
    for option, name in ZIMAGE_FILES.items():
        os.symlink(made.zimage_files()[option], root / "job" / "models" / f"{name}.safetensors")
    (root / "job" / "cache").mkdir()
    for number in range(6):
        for name in (f"{number:02d}_0256x0256_zi", f"{number:02d}_zi_te"):
            (root / "job" / "cache" / f"{name}.safetensors").touch()
    return patient


def _patient(root: Path, script: str, data: str) -> Patient:
    dataset(root / "job" / "data" / "faces")
    (root / "job" / "models").mkdir()
    (root / "home").mkdir()
    (root / "job" / "train.sh").write_text(script, encoding="utf-8")
    (root / "job" / "data.toml").write_text(data, encoding="utf-8")
    (root / "job" / "prompts.txt").write_text("testarossa in the rain\n", encoding="utf-8")
    return Patient(root, "train.sh", packages={**PACKAGES, **OWN_PACKAGES})


def _without(option: str) -> Callable[[Patient], None]:
    """Take an option out of the script, with its value."""

    def plant(patient: Patient) -> None:
        patient.take(f"option {option}")
        text = patient.path.read_text(encoding="utf-8")
        (line,) = [line for line in text.split("\n") if line.startswith(f"  --{option} ") or line == f"  --{option}"]
        patient.edit(f"{line}\n", "")

    return plant


def _file(name: str, change: Callable[[bytes], bytes]) -> Callable[[Patient], None]:
    """Put another file in a model file's place: what `change` makes of its beginning."""

    def plant(patient: Patient) -> None:
        path = patient.file(f"models/{name}.safetensors")
        patient.take(f"file {name}")
        with path.open("rb") as file:
            data = file.read(1 << 16)
        path.unlink()
        path.write_bytes(change(data))

    return plant


def _lost(name: str) -> Callable[[Patient], None]:
    def plant(patient: Patient) -> None:
        patient.take(f"file {name}")
        patient.file(f"models/{name}.safetensors").unlink()

    return plant


def _nowhere(option: str, name: str) -> Callable[[Patient], None]:
    def plant(patient: Patient) -> None:
        patient.take(f"option {option}")
        patient.take(f"file {name}")
        patient.edit(f"models/{name}.safetensors", f"none/{name}.safetensors")

    return plant


def _unnamed(option: str, name: str) -> Callable[[Patient], None]:
    def plant(patient: Patient) -> None:
        patient.take(f"file {name}")
        _without(option)(patient)

    return plant


def _rate_a_word(patient: Patient) -> None:
    patient.take("option learning_rate")
    patient.edit("rate 1e-4", "rate small")


def _options(network: str) -> list[Fault]:
    """Slips in the script that are the same for both trainers."""
    return [
        Fault("option-misspelt", ("CFG002",), "network_dimm", edit("--network_dim 16", "--network_dimm 16")),
        Fault("steps-a-word", ("CFG004", "KOH015"), "max_train_steps", edit("steps 2000", "steps many")),
        Fault("network-misspelt", ("KOH002",), "lora_", edit(f"networks.{network}", "networks.lora_fulx")),
        Fault("optimizer-word", ("KOH013",), "adamw8bits", edit("adamw8bit", "adamw8bits")),
        Fault("precision-word", ("CFG004",), "bf61", edit("  --mixed_precision bf16", "  --mixed_precision bf61")),
        Fault("no-rate", ("KOH010",), "", _without("learning_rate")),
        Fault("no-output", ("KOH011",), "", _without("output_dir")),
        Fault("prompts-nowhere", ("KOH012",), "prompts", edit("prompts.txt", "promts.txt")),
        Fault("weights-nowhere", ("KOH012",), "before", behind("--network_alpha", "--network_weights before.st \\")),
        Fault("state-nowhere", ("KOH012",), "state", behind("--network_alpha", "--resume output/state \\")),
        Fault("datasets-nowhere", ("KOH012",), "data.tml", edit("data.toml", "data.tml")),
        Fault("too-many-blocks", ("KOH003",), "blocks_to_swap", edit("swap 20", "swap 60")),
        Fault("no-bitsandbytes", ("PKG005",), "bitsandbytes", lambda p: p.package("bitsandbytes", None)),
        Fault("rate-a-word", ("CFG004", "KOH015"), "learning_rate", _rate_a_word),
    ]


_buckets = edit("enable_bucket", "enable_buckets", "data.toml")


def _pictures(key: str) -> list[Fault]:
    folder = "data/faces"

    def broken(patient: Patient) -> None:
        patient.take("pictures")
        path = patient.file(f"{folder}/00.png")
        path.write_bytes(b"<!DOCTYPE html>")

    def uncaptioned(patient: Patient) -> None:
        patient.file(f"{folder}/01.txt").unlink()

    def another_encoding(patient: Patient) -> None:
        patient.file(f"{folder}/02.txt").write_bytes("Testarossa im Gr\xfcnen, sch\xf6n".encode("cp1252"))

    def none_left(patient: Patient) -> None:
        patient.take("pictures")
        for path in sorted(patient.file(folder).glob("*.png")):
            path.unlink()

    def other_ending(patient: Patient) -> None:
        patient.edit('caption_extension = ".txt"', 'caption_extension = ".caption"', "data.toml")

    return [
        Fault("picture-broken", ("KOH014",), "00.png", broken),
        Fault("caption-missing", ("KOH005",), "", uncaptioned),
        Fault("caption-in-cp1252", ("DAT003",), "/02.", another_encoding),
        Fault("no-pictures", ("KOH004",), folder, none_left),
        Fault("captions-of-another-ending", ("KOH005",), ".caption", other_ending),
        Fault("pictures-nowhere", ("PTH004",), "data/face", edit(f'"{folder}"', '"data/face"', "data.toml")),
        Fault(
            "dataset-key-misspelt",
            ("CFG002",),
            "enable_buckets",
            _buckets,
        ),
        Fault(
            "repeats-in-quotes",
            ("KOH015", "CFG004"),
            "num_repeats",
            edit("repeats = 1", 'repeats = "1"', "data.toml"),
        ),
        Fault("quote-open", ("CFG001",), "data.toml", edit(f'{key} = "{folder}"', f'{key} = "{folder}', "data.toml")),
        Fault("key-twice", ("CFG001", "CFG005"), "batch_size", behind("batch_size", "batch_size = 2", "data.toml")),
    ]


def _machine(output: str = "job/output") -> list[Fault]:
    def read_only(patient: Patient) -> None:
        patient.take("option output_dir")
        (patient.root / output).mkdir(exist_ok=True)
        patient.refuse(output)

    return [
        Fault("card-without-bf16", ("TRN002",), "", lambda p: p.card(capability=[7, 5])),
        Fault("driver-old", ("PKG003",), "", lambda p: p.card(driver="470.82")),
        Fault("torch-for-cpu", ("PKG001",), "", lambda p: p.package("torch", "2.13.0+cpu")),
        Fault("output-read-only", ("PTH001",), output, read_only),
    ]


def _files(files: dict[str, str]) -> list[Fault]:
    """Every file of the model lost, cut off, or named where it is not."""
    faults: list[Fault] = []
    for option, name in files.items():
        faults += [
            Fault(f"{name}-lost", ("KOH001",), option, _lost(name)),
            Fault(f"{name}-cut-off", ("MDL004",), name, _file(name, cut)),
            Fault(f"{name}-unnamed", ("KOH001",), option, _unnamed(option, name)),
            Fault(f"{name}-nowhere", ("KOH001",), "none/", _nowhere(option, name)),
        ]
    return faults


def flux_faults() -> list[Fault]:
    return [
        *_options("lora_flux"),
        Fault("guidance-of-the-parser", ("KOH007",), "guidance", _without("guidance_scale")),
        Fault("prediction-of-the-parser", ("KOH007",), "prediction", _without("model_prediction_type")),
        Fault("schedule-word", ("KOH013",), "constant_with_warmpu", edit("with_warmup", "with_warmpu")),
        Fault("timestep-word", ("CFG004",), "flux_shfit", edit("flux_shift", "flux_shfit")),
        Fault("arguments-without-sign", ("KOH003",), "network_args", edit("train_blocks=single", "train_blocks")),
        Fault("odd-buckets", ("KOH003",), "bucket_reso_steps", edit("steps = 64", "steps = 48", "data.toml")),
        *_pictures("image_dir"),
        *_machine(),
        *_files(FLUX_FILES),
    ]


def zimage_faults() -> list[Fault]:
    def no_caches(patient: Patient) -> None:
        for path in sorted((patient.job / "cache").glob("*_zi.safetensors")):
            path.unlink()

    return [
        *_options("lora_zimage"),
        Fault("scaled-alone", ("KOH003",), "fp8_scaled", _without("fp8_base")),
        Fault("no-attention", ("KOH003",), "", _without("sdpa")),
        Fault("no-caches", ("KOH006",), "cache", no_caches),
        Fault("timestep-word", ("CFG004",), "shfit", edit("timestep_sampling shift", "timestep_sampling shfit")),
        Fault("weighting-word", ("CFG004",), "nnoe", edit("scheme none", "scheme nnoe")),
        *_pictures("image_directory"),
        *_machine(),
        *_files(ZIMAGE_FILES),
    ]
