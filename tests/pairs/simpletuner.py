"""A patient of SimpleTuner, a Z-Image-Turbo LoRA from the hub cache with its file of datasets, and its faults."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from zdoctor.tests.machines import PACKAGES
from zdoctor.tests.pairs.ai_toolkit import ZIMAGE, pipeline
from zdoctor.tests.pairs.common import behind, edit, hub
from zdoctor.tests.pairs.patient import Fault, Patient, cached, dataset

CONFIG = """\
{
  "model_family": "z_image",
  "model_flavour": "turbo",
  "model_type": "lora",
  "lora_rank": 16,
  "lora_alpha": 16,
  "output_dir": "output/testarossa",
  "data_backend_config": "config/data.json",
  "max_train_steps": 2000,
  "num_train_epochs": 0,
  "train_batch_size": 1,
  "gradient_accumulation_steps": 1,
  "learning_rate": 1e-4,
  "lr_scheduler": "constant",
  "optimizer": "adamw_bf16",
  "mixed_precision": "bf16",
  "validation_steps": 250,
  "validation_prompt": "testarossa in the rain",
  "validation_guidance": 1.0,
  "validation_num_inference_steps": 8,
  "validation_resolution": "256x256",
  "checkpoint_step_interval": 250,
  "report_to": "none",
  "seed": 42,
  "gradient_checkpointing": true,
  "base_model_precision": "int8-torchao"
}
"""
DATA = """\
[
  {
    "id": "faces",
    "type": "local",
    "instance_data_dir": "data/faces",
    "caption_strategy": "textfile",
    "resolution": 256,
    "resolution_type": "pixel",
    "crop": true,
    "crop_style": "center",
    "crop_aspect": "square",
    "repeats": 10,
    "cache_dir_vae": "cache/vae/faces"
  },
  {
    "id": "text",
    "type": "local",
    "dataset_type": "text_embeds",
    "default": true,
    "cache_dir": "cache/text"
  }
]
"""
BACKEND = "config/data.json"
REPO = "TONGYI-MAI/Z-Image-Turbo"  # as the trainer writes it


def zimage(root: Path) -> Patient:
    cached(root / "hf" / "hub", REPO, pipeline(ZIMAGE, "ZImagePipeline"))
    dataset(root / "job" / "data" / "faces")
    (root / "home").mkdir()
    (root / "job" / "config").mkdir()
    (root / "job" / "config" / "config.json").write_text(CONFIG, encoding="utf-8")
    (root / "job" / BACKEND).write_text(DATA, encoding="utf-8")
    return Patient(root, "config/config.json", packages={**PACKAGES, "simpletuner": "4.0.0"})


def _line(key: str, old: object, new: object) -> Callable[[Patient], None]:
    return edit(f'"{key}": {json.dumps(old)}', f'"{key}": {json.dumps(new)}')


def _data(key: str, old: object, new: object) -> Callable[[Patient], None]:
    return edit(f'"{key}": {json.dumps(old)}', f'"{key}": {json.dumps(new)}', BACKEND)


def _option(text: str) -> Callable[[Patient], None]:
    return behind('"seed": 42', text)


def _marked(name: str) -> Callable[[Patient], None]:
    def plant(patient: Patient) -> None:
        path = patient.file(name)
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())

    return plant


def _files() -> list[Fault]:
    return [
        Fault("byte-order-mark", ("CFG001",), "config.json", _marked("config/config.json")),
        Fault("trailing-comma", ("CFG001",), "config.json", edit('"int8-torchao"\n}', '"int8-torchao",\n}')),
        Fault("quote-open", ("CFG001",), "config.json", edit('"report_to": "none",', '"report_to": "none,')),
        Fault(
            # the last one counts, which is what other faults spoil
            *("key-twice", ("CFG005",), "train_batch_size"),
            behind('"num_train_epochs"', '"train_batch_size": 2,'),
        ),
        Fault("backend-byte-order-mark", ("CFG001", "SIM006"), "data.json", _marked(BACKEND)),
        Fault(
            "backend-trailing-comma",
            ("CFG001", "SIM006"),
            "data.json",
            edit('vae/faces"\n', 'vae/faces",\n', BACKEND),
        ),
        Fault("backend-key-twice", ("CFG005",), "repeats", behind('"repeats": 10', '"repeats": 20,', BACKEND)),
        Fault("backend-nowhere", ("PTH004", "SIM006"), "data.jsn", edit('"config/data.json"', '"config/data.jsn"')),
    ]


def _options() -> list[Fault]:
    return [
        Fault("rank-misspelt", ("CFG002",), "lora_rnak", edit('"lora_rank"', '"lora_rnak"')),
        Fault("steps-misspelt", ("CFG002",), "checkpoint_step_intervall", edit("step_interval", "step_intervall")),
        Fault("family-word", ("CFG004",), "z-image", _line("model_family", "z_image", "z-image")),
        Fault("type-word", ("CFG004",), "lroa", _line("model_type", "lora", "lroa")),
        Fault("quantization-word", ("CFG004",), "int8'", _line("base_model_precision", "int8-torchao", "int8")),
        Fault("schedule-word", ("CFG004",), "constnat", _line("lr_scheduler", "constant", "constnat")),
        Fault("precision-word", ("CFG004", "SIM003"), "mixed_precision", _line("mixed_precision", "bf16", "fp8")),
        Fault("steps-and-epochs", ("SIM002",), "", _line("num_train_epochs", 0, 3)),
        Fault("batch-a-word", ("SIM003",), "train_batch_size", _line("train_batch_size", 1, "two")),
        Fault("rate-a-word", ("SIM003",), "learning_rate", edit('"learning_rate": 1e-4', '"learning_rate": "small"')),
        Fault("accumulation-zero", ("SIM003",), "accumulation", _line("gradient_accumulation_steps", 1, 0)),
        Fault("false-in-quotes", ("SIM001",), "checkpointing", _line("gradient_checkpointing", True, "false")),
        Fault("two-offloads", ("SIM003",), "exclude", _option('"ramtorch": true,\n"enable_group_offload": true,')),
        Fault("lycoris-alone", ("SIM003",), "lycoris_config", _option('"lora_type": "lycoris",')),
        Fault("inert-decay", ("SIM004",), "adam_weight_decay", _option('"adam_weight_decay": 0.0,')),
        Fault("no-adapter", ("SIM008",), "", _option('"disable_assistant_lora": true,')),
        Fault("a-mapping-lost", ("SIM001",), "quantization_config", _option('"quantization_config": {"bits": 4},')),
    ]


def _datasets() -> list[Fault]:
    folder = "data/faces"

    def uncaptioned(patient: Patient) -> None:
        patient.file(f"{folder}/01.txt").unlink()

    def another_encoding(patient: Patient) -> None:
        patient.file(f"{folder}/02.txt").write_bytes("Testarossa im Gr\xfcnen, sch\xf6n".encode("cp1252"))

    def none_left(patient: Patient) -> None:
        for path in sorted((patient.job / folder).glob("*.png")):
            path.unlink()

    return [
        Fault("strategy-word", ("SIM006",), "text_file", _data("caption_strategy", "textfile", "text_file")),
        Fault("resolution-word", ("SIM006",), "pixle", _data("resolution_type", "pixel", "pixle")),
        Fault("crop-word", ("SIM006",), "middle", _data("crop_style", "center", "middle")),
        Fault("aspect-alone", ("SIM006",), "crop_aspect_buckets", _data("crop_aspect", "square", "random")),
        Fault("id-missing", ("SIM006",), "id", edit('    "id": "faces",\n', "", BACKEND)),
        Fault("kind-word", ("SIM006",), "text_embed'", _data("dataset_type", "text_embeds", "text_embed")),
        Fault("one-folder-for-two", ("SIM006",), "same folder", _data("cache_dir", "cache/text", "cache/vae/faces")),
        Fault(
            "size-alone", ("SIM006",), "target_downsample", behind('"repeats"', '"maximum_image_size": 512,', BACKEND)
        ),
        Fault("pictures-nowhere", ("PTH004",), "data/face", edit('"data/faces"', '"data/face"', BACKEND)),
        Fault("caption-missing", ("SIM010",), "", uncaptioned),
        Fault("caption-in-cp1252", ("DAT003",), "/02.", another_encoding),
        Fault("no-pictures", ("DAT001", "SIM007"), "", none_left),
        Fault("batch-too-large", ("SIM007",), "", _data_of_batch),
    ]


def _of_size(patient: Patient) -> None:
    patient.behind('"repeats"', '"maximum_image_size": 512,', BACKEND)


def _data_of_batch(patient: Patient) -> None:
    patient.edit('"repeats": 10', '"repeats": 0', BACKEND)
    patient.edit('"train_batch_size": 1', '"train_batch_size": 16')


def _machine() -> list[Fault]:
    def read_only(patient: Patient) -> None:
        (patient.job / "output").mkdir()
        patient.refuse("job/output")

    return [
        Fault("card-without-bf16", ("TRN002",), "", lambda p: p.card(capability=[7, 5])),
        Fault("driver-old", ("PKG003",), "", lambda p: p.card(driver="470.82")),
        Fault("torch-for-cpu", ("PKG001",), "", lambda p: p.package("torch", "2.13.0+cpu")),
        Fault("output-read-only", ("PTH001",), "job/output", read_only),
    ]


def zimage_faults() -> list[Fault]:
    return [*_files(), *_options(), *_datasets(), *_machine(), *hub(REPO)]
