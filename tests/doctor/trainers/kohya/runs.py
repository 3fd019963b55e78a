"""Runs of sd-scripts and musubi-tuner as the runner takes them over: what the tests here share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from zdoctor.doctor.errors import UserError
from zdoctor.doctor.examine.translate import for_runner
from zdoctor.doctor.model import Run, Schema
from zdoctor.doctor.schema.tables import shipped
from zdoctor.doctor.train.settings.refuse import refuse
from zdoctor.doctor.trainers.read import Found, read_config

FLUX = {
    "pretrained_model_name_or_path": "flux1-dev.safetensors",
    "ae": "ae.safetensors",
    "clip_l": "clip_l.safetensors",
    "t5xxl": "t5xxl_fp16.safetensors",
    "network_module": "networks.lora_flux",
    "network_train_unet_only": True,
    "model_prediction_type": "raw",
    "mixed_precision": "bf16",
    "output_dir": "out",
    "output_name": "cat",
    "dataset_config": "d.toml",
}
ZIMAGE = {
    "dit": "z.safetensors",
    "vae": "ae.safetensors",
    "text_encoder": "qwen.safetensors",
    "network_module": "networks.lora_zimage",
    "mixed_precision": "bf16",
    "output_dir": "out",
    "output_name": "cat",
    "dataset_config": "m.toml",
}
KONTEXT = {
    **{name: value for name, value in ZIMAGE.items() if name != "text_encoder"},
    "text_encoder1": "t5.safetensors",
    "text_encoder2": "clip.safetensors",
    "network_module": "networks.lora_flux",
}
SDXL = {
    **{name: value for name, value in FLUX.items() if name not in ("ae", "clip_l", "t5xxl", "model_prediction_type")},
    "pretrained_model_name_or_path": "sd_xl_base_1.0.safetensors",
    "network_module": "networks.lora",
}
SCRIPTS: dict[str, dict[str, Any]] = {
    "flux_train_network": FLUX,
    "zimage_train_network": ZIMAGE,
    "flux_kontext_train_network": KONTEXT,
}
FROM_A_START = {"sdxl_train_network": SDXL}
SUBSET = {"image_dir": "/data/cat", "num_repeats": 2}
SET = {"resolution": [512, 768], "batch_size": 1}
GENERAL = {"resolution": [960, 544], "caption_extension": ".txt"}
MUSUBI_SET = {"image_directory": "/data/cat", "cache_directory": "/cache", "control_directory": "/data/before"}
SHIFT = (256.0, 0.5, 4096.0, 1.15)


def toml(values: Mapping[str, Any]) -> str:
    def word(value: Any) -> str:
        return str(value).lower() if isinstance(value, bool) else repr(value)

    return "".join(f"{name} = {word(value)}\n" for name, value in values.items() if value is not ...)


def run_of(
    script: str = "flux_train_network",
    options: Mapping[str, Any] | None = None,
    *,
    general: Mapping[str, Any] | None = None,
    of_set: Mapping[str, Any] | None = None,
    of_subset: Mapping[str, Any] | None = None,
) -> Run:
    """The run of a config file and a file of datasets."""
    files = {
        "d.toml": f"[general]\n{toml(general or {})}[[datasets]]\n{toml({**SET, **(of_set or {})})}"
        f"[[datasets.subsets]]\n{toml({**SUBSET, **(of_subset or {})})}",
        "m.toml": f"[general]\n{toml({**GENERAL, **(general or {})})}"
        f"[[datasets]]\n{toml({**MUSUBI_SET, **(of_set or {})})}",
    }
    files["c.toml"] = toml({**(SCRIPTS | FROM_A_START)[script], **(options or {})})
    # the options of SDXL do not show which script takes them
    name, text = (
        ("t.sh", f"{script}.py --config_file c.toml") if script in FROM_A_START else ("c.toml", files["c.toml"])
    )
    trainer = "sd-scripts" if script in ("flux_train_network", *FROM_A_START) else "musubi-tuner"
    return read_config(
        name,
        text.encode(),
        {},
        trainer=trainer,
        beside=lambda name: Found(name, files[name].encode()) if name in files else None,
    ).runs[0]


def schema_of(run: Run) -> Schema:
    found = shipped(run.trainer)
    assert found is not None
    return found


def trained(run: Run, folders: Mapping[str, tuple[str, ...]] | None = None) -> Run:
    made = for_runner(run, schema_of(run), lambda folder: (folders or {}).get(folder))
    assert refuse(made) == [], made
    return made


def said(run: Run) -> str:
    with pytest.raises(UserError) as error:
        for_runner(run, schema_of(run))
    return str(error.value)


def differences(run: Run) -> tuple[str, ...]:
    """What the runner says that it does in another way."""
    return for_runner(run, schema_of(run)).differences
