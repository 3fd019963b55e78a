"""Small real configs for tests that work on a real file system."""

from __future__ import annotations

from pathlib import Path

TEMPLATE = """\
job: extension
config:
  name: tiny
  process:
    - type: diffusion_trainer
      training_folder: {training_folder}
      device: {device}
      network:
        type: lora
        linear: 4
        linear_alpha: 4
      datasets:
        - folder_path: {folder_path}
          caption_ext: txt
          resolution: [128]
      train:
        batch_size: 1
        steps: 4
        noise_scheduler: flowmatch
        optimizer: adamw
        lr: 1e-4
        dtype: bf16
        cache_text_embeddings: true
        disable_sampling: true
      model:
        name_or_path: {name_or_path}
        arch: "zimage:turbo"
        assistant_lora_path: {assistant_lora_path}
"""


def write_config(folder: Path, **values: str) -> Path:
    """A config in `folder`; what is not given names something that does not exist there."""
    given = {
        "training_folder": str(folder / "output"),
        "folder_path": str(folder / "data"),
        "name_or_path": "Tongyi-MAI/Z-Image-Turbo",
        "assistant_lora_path": "null",
        "device": "cpu",
    }
    path = folder / "config.yaml"
    path.write_text(TEMPLATE.format(**{**given, **values}), encoding="utf-8")
    return path
