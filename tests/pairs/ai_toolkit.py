"""Patients of ai-toolkit, a Z-Image-Turbo and a FLUX.1-dev LoRA from the hub cache, and their faults."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from zdoctor.doctor.families.tensors import needed_tensors
from zdoctor.tests.machines import FLUX_DEV, FULL
from zdoctor.tests.pairs.common import POINTER, VAE_FILE, behind, cut, edit, hub, machine, old_packages, pictures
from zdoctor.tests.pairs.patient import Fault, Patient, cached, dataset, spoil, weights

ZIMAGE_REPO, FLUX_FOLDER = "Tongyi-MAI/Z-Image-Turbo", "models/FLUX.1-dev"
ADAPTER = "adapters/zimage_turbo_training_adapter_v2.safetensors"
VAE = {**FULL["vae"], "block_out_channels": [8, 8, 8, 8], "layers_per_block": 1, "norm_num_groups": 4}
ZIMAGE: dict[str, dict[str, Any]] = {
    "transformer": {
        **FULL["transformer"],
        "dim": 24,
        "n_layers": 2,
        "n_refiner_layers": 1,
        "n_heads": 2,
        "n_kv_heads": 2,
        "cap_feat_dim": 16,
        "axes_dims": [4, 4, 4],
    },
    "text_encoder": {
        **FULL["text_encoder"],
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "intermediate_size": 32,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "vocab_size": 64,
    },
    "vae": VAE,
}
FLUX: dict[str, dict[str, Any]] = {
    "transformer": {
        **FLUX_DEV["transformer"],
        "num_layers": 1,
        "num_single_layers": 2,
        "attention_head_dim": 8,
        "num_attention_heads": 2,
        "joint_attention_dim": 24,
        "pooled_projection_dim": 20,
        "axes_dims_rope": [2, 2, 4],
    },
    "text_encoder": {
        **FLUX_DEV["text_encoder"],
        "hidden_size": 20,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "vocab_size": 64,
    },
    "text_encoder_2": {
        **FLUX_DEV["text_encoder_2"],
        "d_model": 24,
        "d_kv": 4,
        "d_ff": 16,
        "num_layers": 2,
        "num_heads": 2,
        "vocab_size": 64,
    },
    "vae": VAE,
}
CONFIG = """\
job: extension
config:
  name: testarossa_lora
  process:
    - type: diffusion_trainer
      training_folder: "output"
      device: cuda
      trigger_word: testarossa
      network:
        type: lora
        linear: 16
        linear_alpha: 16
      save:
        dtype: bf16
        save_every: 250
        max_step_saves_to_keep: 4
      datasets:
        - folder_path: "data/faces"
          caption_ext: txt
          caption_dropout_rate: 0.05
          resolution: [256]
          cache_latents_to_disk: true
      train:
        batch_size: 1
        steps: 2000
        gradient_accumulation: 1
        gradient_checkpointing: true
        noise_scheduler: flowmatch
        timestep_type: {timestep}
        optimizer: adamw8bit
        lr: 1e-4
        dtype: bf16
      model:
        name_or_path: {model}
        arch: {arch}
        quantize: true
        qtype: qfloat8
{adapter}      sample:
        sampler: flowmatch
        sample_every: 250
        width: 256
        height: 256
        guidance_scale: {guidance}
        sample_steps: {sample_steps}
        samples:
          - prompt: testarossa in the rain
"""


def pipeline(parts: Mapping[str, Mapping[str, Any]], class_name: str) -> dict[str, bytes]:
    """The files of a whole pipeline: the transformer in two shards, everything else in one file."""
    files: dict[str, bytes] = {}
    for name, config in parts.items():
        known = config.get("_class_name") or config["architectures"][0]
        tensors = dict(needed_tensors(known, config) or {})
        files[f"{name}/config.json"] = json.dumps(config).encode()
        stem = "model" if name.startswith("text_encoder") else "diffusion_pytorch_model"
        if name != "transformer":
            files[f"{name}/{stem}.safetensors"] = weights(tensors)
            continue
        names = list(tensors)
        half = len(names) // 2
        weight_map: dict[str, str] = {}
        for number, group in ((1, names[:half]), (2, names[half:])):
            shard = f"{stem}-{number:05d}-of-00002.safetensors"
            files[f"{name}/{shard}"] = weights({key: tensors[key] for key in group})
            weight_map |= dict.fromkeys(group, shard)
        index = {"metadata": {}, "weight_map": weight_map}
        files[f"{name}/{stem}.safetensors.index.json"] = json.dumps(index).encode()
    tokenizers: dict[str, tuple[str, ...]] = {
        "tokenizer": ("tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt")
    }
    if "text_encoder_2" in parts:
        tokenizers["tokenizer_2"] = ("tokenizer.json", "tokenizer_config.json", "spiece.model")
    for folder, needed in tokenizers.items():
        files |= {f"{folder}/{file}": f'{{"of": "{folder}/{file}"}}'.encode() for file in needed}
    files["scheduler/scheduler_config.json"] = b'{"shift": 3.0}'
    files["model_index.json"] = json.dumps({"_class_name": class_name}).encode()
    return files


def adapter() -> bytes:
    """A training adapter of rank 4 for the tiny transformer."""
    shapes = needed_tensors("ZImageTransformer2DModel", ZIMAGE["transformer"]) or {}
    tensors: dict[str, tuple[int, ...]] = {}
    for name, shape in shapes.items():
        if name.startswith("layers.") and name.endswith(".weight") and len(shape) == 2:
            stem = f"diffusion_model.{name.removesuffix('.weight')}"
            tensors[f"{stem}.lora_A.weight"] = (4, shape[1])
            tensors[f"{stem}.lora_B.weight"] = (shape[0], 4)
    return weights(tensors)


def zimage(root: Path) -> Patient:
    cached(root / "hf" / "hub", ZIMAGE_REPO, pipeline(ZIMAGE, "ZImagePipeline"))
    text = CONFIG.format(
        timestep="weighted",
        model=ZIMAGE_REPO,
        arch='"zimage:turbo"',
        adapter=f"        assistant_lora_path: {ADAPTER}\n",
        guidance=1,
        sample_steps=8,
    )
    patient = _patient(root, text)
    (patient.job / ADAPTER).parent.mkdir()
    (patient.job / ADAPTER).write_bytes(adapter())
    return patient


def flux(root: Path) -> Patient:
    for name, data in pipeline(FLUX, "FluxPipeline").items():
        path = root / "job" / FLUX_FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    text = CONFIG.format(timestep="sigmoid", model=FLUX_FOLDER, arch="flux", adapter="", guidance=4, sample_steps=20)
    return _patient(root, text)


def _patient(root: Path, text: str) -> Patient:
    dataset(root / "job" / "data" / "faces")
    (root / "home").mkdir()
    (root / "job" / "config.yaml").write_text(text, encoding="utf-8")
    return Patient(root, "config.yaml")


def _syntax() -> list[Fault]:
    return [
        Fault("tab", ("CFG001",), "tab", edit("        linear: 16\n", "\t\tlinear: 16\n")),
        Fault("quote-open", ("CFG001",), "", edit("trigger_word: testarossa\n", 'trigger_word: "testarossa\n')),
        Fault("bracket-open", ("CFG001",), "", edit("resolution: [256]", "resolution: [256")),
        Fault("colon-without-space", ("CFG001",), "", edit("steps: 2000", "steps:2000")),
        Fault("indented-wrongly", ("CFG001",), "", edit("        save_every: 250", "         save_every: 250")),
        Fault("key-twice", ("CFG005",), "batch_size", behind("batch_size: 1", "batch_size: 2")),
        Fault("section-twice", ("CFG005",), "save", behind("trigger_word:", "save: {dtype: bf16, save_every: 500}")),
        Fault("trailing-comma", ("CFG004",), "accumulation", edit("accumulation: 1\n", "accumulation: 1,\n")),
        Fault(
            *("backslashes", ("PTH002", "CFG001"), "faces"),
            edit('folder_path: "data/faces"', 'folder_path: "data\\faces"'),
        ),
    ]


def _keys() -> list[Fault]:
    return [
        Fault(
            "checkpointing-misspelt",
            ("CFG002",),
            "gradient_checkpoint",
            edit("gradient_checkpointing", "gradient_checkpoint"),
        ),
        Fault("alpha-misspelt", ("CFG002",), "linear_alfa", edit("linear_alpha: 16", "linear_alfa: 16")),
        Fault("keep-misspelt", ("CFG002",), "max_step_save", edit("max_step_saves_to_keep", "max_step_save_to_keep")),
        Fault(
            "dropout-misspelt", ("CFG002",), "caption_drop_rate", edit("caption_dropout_rate", "caption_drop_rate")
        ),
        Fault("network-misspelt", ("CFG002",), "netwrok", edit("      network:", "      netwrok:")),
        Fault("datasets-misspelt", ("CFG002", "DAT001"), "dataset", edit("      datasets:", "      dataset:")),
        Fault(
            "scheduler-word",
            ("CFG004",),
            "flowmatchx",
            edit("noise_scheduler: flowmatch", "noise_scheduler: flowmatchx"),
        ),
        Fault("optimizer-word", ("CFG004",), "adamw8bits", edit("adamw8bit", "adamw8bits")),
        Fault("quantization-word", ("CFG004",), "qfloat9", edit("qtype: qfloat8", "qtype: qfloat9")),
        Fault(
            "dtype-word", ("CFG004",), "bf61", edit("lr: 1e-4\n        dtype: bf16", "lr: 1e-4\n        dtype: bf61")
        ),
        Fault(
            "save-dtype-word",
            ("CFG004",),
            "flaot16",
            edit("save:\n        dtype: bf16", "save:\n        dtype: flaot16"),
        ),
        Fault("network-word", ("CFG004",), "lroa", edit("type: lora", "type: lroa")),
        Fault("job-word", ("CFG001", "CFG004"), "extensoin", edit("job: extension", "job: extensoin")),
        Fault(
            "process-word", ("CFG001", "CFG004"), "diffusion_trianer", edit("diffusion_trainer", "diffusion_trianer")
        ),
        Fault("steps-a-word", ("CFG004",), "steps", edit("steps: 2000", "steps: many")),
        Fault("rank-a-word", ("CFG004",), "linear", edit("linear: 16\n", "linear: sixteen\n")),
        Fault("width-a-word", ("CFG004",), "width", edit("width: 256", "width: wide")),
        Fault("resolution-a-word", ("CFG004",), "resolution", edit("resolution: [256]", "resolution: [big]")),
        Fault("rate-a-word", ("CFG004",), "lr", edit("lr: 1e-4", "lr: small")),
    ]


def _settings() -> list[Fault]:
    def earlier(rank: int, name: str, *, cut: bool = False, step: int = 500) -> Callable[[Patient], None]:
        def save(patient: Patient) -> None:
            patient.take("save")
            folder = patient.job / "output" / "testarossa_lora"
            folder.mkdir(parents=True)
            tensors = {
                "diffusion_model.layers.0.attention.to_q.lora_A.weight": (rank, 24),
                "diffusion_model.layers.0.attention.to_q.lora_B.weight": (24, rank),
            }
            data = weights(tensors, {"training_info": json.dumps({"step": step, "epoch": 1})})
            (folder / name).write_bytes(data[:-40] if cut else data)

        return save

    return [
        Fault("pictures-nowhere", ("PTH004",), "data/face", edit('"data/faces"', '"data/face"')),
        Fault("model-nowhere", ("PTH004", "MDL003"), "/models/none", _base_model("/models/none")),
        Fault("masks-nowhere", ("DAT008", "PTH004"), "data/mask", _masks_nowhere),
        Fault("resolution-too-large", ("DAT006",), "1024", edit("resolution: [256]", "resolution: [256, 1024]")),
        Fault(
            "latents-not-cached", ("TRN001",), "", edit("cache_latents_to_disk: true", "cache_latents_to_disk: false")
        ),
        Fault("text-encoder-unloaded", ("TRN006",), "", behind("gradient_accumulation", "unload_text_encoder: true")),
        Fault("save-of-another-rank", ("TRN007",), "", earlier(8, "testarossa_lora_000000500.safetensors")),
        Fault("save-cut-off", ("TRN010",), "", earlier(16, "testarossa_lora_000000500.safetensors", cut=True)),
        Fault("no-step-left", ("TRN008",), "", earlier(16, "testarossa_lora_000002000.safetensors", step=2000)),
        Fault(
            "no-wandb", ("PKG005",), "wandb", behind("trigger_word", "logging: {use_wandb: true, project_name: a}")
        ),
        Fault("inert-key", ("CFG003",), "linear_alpha", edit("linear_alpha: 16", "linear_alpha: 8")),
    ]


def _masks_nowhere(patient: Patient) -> None:
    patient.take("masks")
    patient.behind("caption_ext", "mask_path: data/mask")


def _base_model(name: str) -> Callable[[Patient], None]:
    def plant(patient: Patient) -> None:
        patient.take("base model")
        repo = next(repo for repo in (ZIMAGE_REPO, FLUX_FOLDER) if repo in patient.path.read_text("utf-8"))
        patient.edit(f"name_or_path: {repo}", f"name_or_path: {name}")

    return plant


def _offline(patient: Patient) -> None:
    patient.environment["HF_HUB_OFFLINE"] = "1"


def _of_zimage() -> list[Fault]:
    def folder(patient: Patient) -> None:
        patient.edit(f"assistant_lora_path: {ADAPTER}", "assistant_lora_path: adapters")

    def torn(patient: Patient) -> None:
        patient.take("adapter")
        spoil(patient.file(ADAPTER), lambda data: data[:-2000])

    def unnamed(patient: Patient) -> None:
        patient.take("adapter")  # nobody opens a file that is not named
        patient.edit(f"        assistant_lora_path: {ADAPTER}\n", "")

    return [
        Fault("offline", ("HUB007",), "", _offline),
        Fault("adapter-is-a-folder", ("PTH003",), "adapters", folder),
        Fault("adapter-nowhere", ("PTH003", "PTH004"), "adapters/none", edit(ADAPTER, "adapters/none.safetensors")),
        Fault("adapter-cut-off", ("MDL005", "MDL004"), "adapters", torn),
        Fault(
            "half-precision", ("TRN003",), "", edit("lr: 1e-4\n        dtype: bf16", "lr: 1e-4\n        dtype: fp16")
        ),
        Fault("no-adapter", ("TRN004",), "", unnamed),
        Fault("guidance-of-turbo", ("TRN005",), "guidance", edit("guidance_scale: 1", "guidance_scale: 4")),
        Fault("timestep-word", ("CFG004",), "wieghted", edit("weighted", "wieghted")),
        Fault("architecture-word", ("CFG004", "CFG001"), "zimgae", edit("zimage:turbo", "zimgae:turbo")),
    ]


def _of_flux() -> list[Fault]:
    def changed(name: str, change: Callable[[bytes], bytes]) -> Callable[[Patient], None]:
        return lambda patient: spoil(patient.file(f"{FLUX_FOLDER}/{name}"), change)

    def lost(*names: str) -> Callable[[Patient], None]:
        def plant(patient: Patient) -> None:
            for path in [patient.file(f"{FLUX_FOLDER}/{name}") for name in names]:
                path.unlink()

        return plant

    shard = "transformer/diffusion_pytorch_model-0000{}-of-00002.safetensors"
    return [
        Fault("shard-lost", ("MDL001", "MDL003"), "00002-of-00002", lost(shard.format(2))),
        Fault("shard-cut-off", ("MDL004",), "00001-of-00002", changed(shard.format(1), cut)),
        Fault("weights-cut-off", ("MDL004",), "text_encoder_2", changed("text_encoder_2/model.safetensors", cut)),
        Fault("pointer-for-weights", ("MDL004",), "vae", changed(VAE_FILE, lambda data: POINTER)),
        Fault("clip-lost", ("MDL003",), "text_encoder", lost("text_encoder/model.safetensors")),
        Fault("scheduler-lost", ("MDL003",), "scheduler", lost("scheduler/scheduler_config.json")),
        Fault("config-cut-off", ("MDL003",), "config.json", changed("vae/config.json", cut)),
        Fault(
            "vocabulary-lost",
            ("MDL003",),
            "tokenizer",
            lost("tokenizer_2/spiece.model", "tokenizer_2/tokenizer.json"),
        ),
        Fault("timestep-word", ("CFG004",), "sigmiod", edit("sigmoid", "sigmiod")),
        Fault("architecture-word", ("CFG004", "CFG001"), "fulx", edit("arch: flux", "arch: fulx")),
    ]


def zimage_faults() -> list[Fault]:
    return [
        *_syntax(),
        *_keys(),
        *_settings(),
        *_of_zimage(),
        *hub(ZIMAGE_REPO),
        *pictures(),
        *machine(),
        *old_packages(),
    ]


def flux_faults() -> list[Fault]:
    return [*_syntax(), *_keys(), *_settings(), *_of_flux(), *pictures(), *machine()]
