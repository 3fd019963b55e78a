"""What is trained beside others: a seeded random Z-Image of any size, and eight pictures with one caption."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import load

from zdoctor.doctor.families.components.autoencoder_kl import VAE
from zdoctor.doctor.families.components.qwen3 import QWEN3_4B

CAPTION = "a photo of a zdoc circle"
IMAGES = 8


def build(
    folder: Path,
    transformer: Mapping[str, Any],
    text_encoder: Mapping[str, Any],
    vae_widths: tuple[int, ...],
    side: int,
    shard: int = load.SHARD,
) -> int:
    """Write model/ in bf16 and the pictures; returns the parameters of the transformer.

    The mappings say what differs from load.py's transformer and from the published text encoder, which has no more
    words than the tiny tokenizer unless it says so.
    """
    import torch
    from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
    from transformers import Qwen3Config
    from transformers.models.qwen3.modeling_qwen3 import Qwen3ForCausalLM

    from zdoctor.doctor.demo.tiny import build_tiny_pipeline

    model = folder / "model"
    build_tiny_pipeline(model)  # its tokenizer and scheduler stay
    vocabulary = json.loads((model / "text_encoder" / "config.json").read_text())["vocab_size"]
    for name in ("transformer", "vae", "text_encoder"):
        for file in (model / name).iterdir():
            file.unlink()
    parameters, _, _ = load.build(model / "transformer", {**load.CONFIG, **transformer}, shard)
    torch.manual_seed(0)
    settings = {
        "block_out_channels": vae_widths,
        "sample_size": 1024,
        "scaling_factor": 0.3611,
        "shift_factor": 0.1159,
    }
    AutoencoderKL(**{**VAE, **settings}).bfloat16().save_pretrained(str(model / "vae"))
    encoder = Qwen3Config(**{**QWEN3_4B, "vocab_size": vocabulary, **text_encoder}, dtype="bfloat16")
    encoder.architectures = ["Qwen3ForCausalLM"]
    encoder.save_pretrained(str(model / "text_encoder"))
    with torch.device("meta"):
        shapes = {name: tuple(value.shape) for name, value in Qwen3ForCausalLM(encoder).state_dict().items()}
    del shapes["lm_head.weight"]  # the embedding is used for it
    load.write_shards(model / "text_encoder", "model", shapes, shard)
    pictures(folder, side)
    return parameters


def pictures(folder: Path, side: int) -> None:
    """The same pictures in images/ and, with a caption each, in captioned/."""
    from PIL import Image, ImageDraw

    for name in ("images", "captioned"):
        (folder / name).mkdir()
    for number in range(IMAGES):
        image = Image.new("RGB", (side, side), (40 * number % 256, 90, 160))
        ImageDraw.Draw(image).ellipse((60 + 10 * number, 80, 300 + 10 * number, 320), fill=(200, 30 * number, 40))
        image.save(folder / "images" / f"{number}.png")
        image.save(folder / "captioned" / f"{number}.png")
        (folder / "captioned" / f"{number}.txt").write_text(CAPTION)
