"""Folders of Qwen-Image: what stops ai-toolkit's loader, and what only looks as if it did."""

from __future__ import annotations

from pathlib import Path

from zdoctor.tests.models import INDEX, rewrite
from zdoctor.tests.qwen_image import healthy_qwen_image, load_qwen_image

from .folders import (
    Family,
    configured,
    dropped,
    eight_bit_without_scales,
    one_more_beside,
    remove,
    reshaped,
    untouched,
)

NAME = "transformer_blocks.1.attn.to_q.weight"


def truncate(folder: Path) -> None:
    file = folder / "text_encoder" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-10])


SICK = {
    "a tensor of a block": (dropped(NAME), "MDL001"),
    "more blocks in the config": (configured("transformer", num_layers=4), "MDL001"),
    "a tensor of the VAE": (
        dropped("decoder.conv_in.weight", "vae", "diffusion_pytorch_model.safetensors"),
        "MDL001",
    ),
    "wrong shape": (reshaped(NAME), "MDL002"),
    "no transformer": (remove("transformer"), "MDL003"),
    "no VAE": (remove("vae"), "MDL003"),
    "no text encoder": (remove("text_encoder"), "MDL003"),
    "no index": (remove("transformer", INDEX), "MDL003"),
    "a text encoder cut short": (truncate, "MDL004"),
}


def names_of_today(folder: Path) -> None:
    """Published files, and those that transformers writes, have the names from before it was 4.52; both are read."""
    names = {"model.": "model.language_model.", "visual.": "model.visual."}

    def new(name: str) -> str:
        return next((to + name.removeprefix(of) for of, to in names.items() if name.startswith(of)), name)

    rewrite(folder / "text_encoder" / "model.safetensors", lambda t: {new(n): v for n, v in t.items()})


WELL = {
    "untouched": untouched,
    "names of today": names_of_today,
    "extra tensor": one_more_beside(NAME),
    "eight bit without scales": eight_bit_without_scales,
}

QWEN_IMAGE = Family(
    ("qwen_image", "qwen_image_edit", "qwen_image_edit_plus"), healthy_qwen_image, load_qwen_image, SICK, WELL
)
