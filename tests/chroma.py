"""A tiny real Chroma pipeline for tests: diffusers' and transformers' own classes with made-up weights."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from diffusers.models.transformers import transformer_chroma

from zdoctor.tests.flux import trainable_flux

ChromaTransformer2DModel: Any = transformer_chroma.ChromaTransformer2DModel
TINY: dict[str, Any] = {
    "in_channels": 16,
    "num_layers": 2,
    "num_single_layers": 2,
    "attention_head_dim": 8,
    "num_attention_heads": 2,
    "joint_attention_dim": 24,
    "axes_dims_rope": [2, 2, 4],
    "approximator_num_channels": 16,
    "approximator_hidden_dim": 20,
    "approximator_layers": 2,
}


def trainable_chroma(folder: Path) -> Path:
    """The pipeline of Chroma in small, with the T5, the VAE and the scheduler of the tiny Flux."""
    with tempfile.TemporaryDirectory() as beside:
        flux = trainable_flux(Path(beside) / "flux")
        for name, of_flux in (("text_encoder", "text_encoder_2"), ("tokenizer", "tokenizer_2")):
            shutil.copytree(flux / of_flux, folder / name)
        for name in ("vae", "scheduler"):
            shutil.copytree(flux / name, folder / name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        ChromaTransformer2DModel(**TINY).save_pretrained(folder / "transformer", max_shard_size="30KB")
    parts = {
        "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
        "text_encoder": ["transformers", "T5EncoderModel"],
        "tokenizer": ["transformers", "T5TokenizerFast"],
        "transformer": ["diffusers", "ChromaTransformer2DModel"],
        "vae": ["diffusers", "AutoencoderKL"],
        "image_encoder": [None, None],
        "feature_extractor": [None, None],
    }
    (folder / "model_index.json").write_text(json.dumps({"_class_name": "ChromaPipeline", **parts}))
    return folder
