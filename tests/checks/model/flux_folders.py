"""Folders of Flux: what stops ai-toolkit's loader, and what only looks as if it did."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file

from zdoctor.doctor.families.flux.tensors import flux_original_name
from zdoctor.doctor.families.record.single_file import original_layout
from zdoctor.doctor.families.tensors import needed_tensors
from zdoctor.tests.flux import DEV, healthy_flux, load_flux
from zdoctor.tests.models import INDEX, edit_json, rewrite

from .folders import (
    Family,
    configured,
    dropped,
    eight_bit_without_scales,
    every_shard,
    one_more_beside,
    remove,
    reshaped,
    untouched,
)

NAME = "single_transformer_blocks.1.proj_mlp.weight"
ADDED = "transformer_blocks.1.attn.add_k_proj.bias"


def schnell_files_as_dev(folder: Path) -> None:
    every_shard(folder, lambda tensors: {n: v for n, v in tensors.items() if ".guidance_embedder." not in n})


def original_names(folder: Path) -> None:
    """The file of Black Forest Labs put into transformer/ under diffusers' file name."""
    needed = needed_tensors("FluxTransformer2DModel", DEV) or {}
    for file in (folder / "transformer").glob("diffusion*"):
        file.unlink()
    tensors = {n: torch.zeros(s) for n, s in original_layout(flux_original_name, needed).items()}
    save_file(tensors, folder / "transformer" / "diffusion_pytorch_model.safetensors")


def truncate(folder: Path) -> None:
    file = folder / "text_encoder_2" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-10])


SICK = {
    "a tensor of a single block": (dropped(NAME), "MDL001"),
    "a bias of a double block": (dropped(ADDED), "MDL001"),
    "schnell's tensors with dev's config": (schnell_files_as_dev, "MDL001"),
    "more layers in the config": (configured("transformer", num_single_layers=4), "MDL001"),
    "a tensor of the VAE": (
        dropped("decoder.conv_in.weight", "vae", "diffusion_pytorch_model.safetensors"),
        "MDL001",
    ),
    "the names of Black Forest Labs": (original_names, "MDL002"),
    "wrong shape": (reshaped(NAME), "MDL002"),
    "no transformer": (remove("transformer"), "MDL003"),
    "no VAE": (remove("vae"), "MDL003"),
    "no T5": (remove("text_encoder_2"), "MDL003"),
    "no CLIP": (remove("text_encoder"), "MDL003"),
    "no scheduler": (remove("scheduler"), "MDL003"),
    "an empty scheduler": (remove("scheduler", "scheduler_config.json"), "MDL003"),
    "no merges": (remove("tokenizer", "merges.txt"), "MDL003"),
    "no index": (remove("transformer", INDEX), "MDL003"),
    "no weights of T5": (remove("text_encoder_2", "model.safetensors"), "MDL003"),
    "T5 cut short": (truncate, "MDL004"),
}


def prefixed_clip(folder: Path) -> None:
    """As published, with the position ids of older versions."""
    rewrite(
        folder / "text_encoder" / "model.safetensors",
        lambda t: (
            {f"text_model.{n}": v for n, v in t.items()}
            | {"text_model.embeddings.position_ids": torch.arange(77)[None]}
        ),
    )


def other_name_of_the_tied_embedding(folder: Path) -> None:
    rewrite(
        folder / "text_encoder_2" / "model.safetensors",
        lambda t: {n.replace("shared.", "encoder.embed_tokens."): v for n, v in t.items()},
    )


def both_names_of_the_tied_embedding(folder: Path) -> None:
    rewrite(
        folder / "text_encoder_2" / "model.safetensors",
        lambda t: {**t, "encoder.embed_tokens.weight": t["shared.weight"].clone()},
    )


def whole_t5(folder: Path) -> None:
    edit_json(
        folder / "text_encoder_2" / "config.json", lambda t: t.update(architectures=["T5ForConditionalGeneration"])
    )
    rewrite(
        folder / "text_encoder_2" / "model.safetensors",
        lambda t: {**t, "decoder.final_layer_norm.weight": torch.zeros(24), "lm_head.weight": torch.zeros(8, 24)},
    )


def beside_another_precision(folder: Path) -> None:
    for part in ("text_encoder", "vae"):
        file = next((folder / part).glob("*.safetensors"))
        file.with_name(f"{file.stem}.fp16.safetensors").write_bytes(b"half a file")


def schnell(folder: Path) -> None:
    schnell_files_as_dev(folder)
    configured("transformer", guidance_embeds=False)(folder)


def no_architectures(folder: Path) -> None:
    for part in ("text_encoder", "text_encoder_2"):
        edit_json(folder / part / "config.json", lambda tree: tree.pop("architectures"))


WELL = {
    "untouched": untouched,
    "prefixed clip": prefixed_clip,
    "other name of the tied embedding": other_name_of_the_tied_embedding,
    "both names of the tied embedding": both_names_of_the_tied_embedding,
    "whole t5": whole_t5,
    "beside another precision": beside_another_precision,
    "extra tensor": one_more_beside(NAME),
    "schnell": schnell,
    "eight bit without scales": eight_bit_without_scales,
    "fast tokenizer alone": remove("tokenizer_2", "tokenizer_config.json"),
    "no architectures": no_architectures,
}

FLUX = Family(("flux", "flux_kontext", "flex2"), healthy_flux, load_flux, SICK, WELL)
