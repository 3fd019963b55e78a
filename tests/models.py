"""Tiny real models for tests: one healthy pipeline, built once, and copies of it that tests may damage."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save_file

from zdoctor.doctor.demo.tiny import build_tiny_pipeline
from zdoctor.doctor.model import Hub, ModelFolder, Run, Unknown
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.probe.model import probe_model
from zdoctor.doctor.trainers.read import read_config

NO_HUB = Hub((), ())
INDEX = "diffusion_pytorch_model.safetensors.index.json"


@cache
def healthy() -> Path:
    """The undamaged tiny pipeline; never to be written to."""
    folder = Path(tempfile.mkdtemp(prefix="zdoctor-tiny-")) / "Z-Tiny"
    build_tiny_pipeline(folder)
    return folder


def copy_to(folder: Path) -> Path:
    """A copy of the healthy pipeline in which every file may be changed."""
    shutil.copytree(healthy(), folder)
    return folder


def run_of(
    model: str | Path, architecture: str = "zimage", *, network: dict[str, Any] | None = None, **settings: Any
) -> Run:
    """An ai-toolkit LoRA run of this model. `settings` are extra keys of the model section."""
    section = {"name_or_path": str(model), "arch": architecture, **settings}
    process = {
        "type": "diffusion_trainer",
        "training_folder": "out",
        "network": network or {"type": "lora", "linear": 4},
        "train": {"dtype": "bf16", "steps": 10},
        "datasets": [{"folder_path": "images", "resolution": [256]}],
        "model": section,
    }
    text = json.dumps({"job": "extension", "config": {"name": "t", "process": [process]}})
    reading = read_config("/c/config.json", text.encode(), {})
    assert reading.runs, (reading.config.problem, reading.reason)
    return reading.runs[0]


def probed(run: Run, hub: Hub | Unknown = NO_HUB) -> ModelFolder:
    seen = probe_model(LiveWorld(), run, hub)
    assert isinstance(seen, ModelFolder), seen
    return seen


def rewrite(file: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Read every tensor of a safetensors file, change the mapping, and write it back."""
    with safe_open(file, "pt") as opened:
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    save_file(change(tensors), file, metadata={"format": "pt"})


def edit_json(file: Path, change: Callable[[dict[str, Any]], None]) -> None:
    tree = json.loads(file.read_text())
    change(tree)
    file.write_text(json.dumps(tree))


def shard_of(folder: Path, tensor: str) -> Path:
    """The transformer shard that holds `tensor`."""
    shard: str = json.loads((folder / "transformer" / INDEX).read_text())["weight_map"][tensor]
    return folder / "transformer" / shard
