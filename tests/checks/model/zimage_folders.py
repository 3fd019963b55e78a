"""Folders of Z-Image: what stops ai-toolkit's loader, and what only looks as if it did."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import torch
from diffusers.models.autoencoders import autoencoder_kl
from diffusers.models.transformers import transformer_z_image
from transformers import AutoTokenizer, Qwen3ForCausalLM

from zdoctor.tests.models import INDEX, edit_json, healthy, rewrite, shard_of

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

ZImageTransformer2DModel: Any = transformer_z_image.ZImageTransformer2DModel
AutoencoderKL: Any = autoencoder_kl.AutoencoderKL

NAME = "layers.1.attention.to_q.weight"


def load(folder: Path) -> dict[str, Any]:
    """What ai-toolkit's Z-Image loader does, ending with the move that meta tensors fail; the models it made."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transformer = ZImageTransformer2DModel.from_pretrained(
            folder, subfolder="transformer", torch_dtype=torch.bfloat16
        )
        transformer.to("cpu")
        assert not any(parameter.is_meta for parameter in transformer.parameters())
        AutoTokenizer.from_pretrained(folder, subfolder="tokenizer")("a photo")
        encoder = Qwen3ForCausalLM.from_pretrained(folder, subfolder="text_encoder", dtype=torch.bfloat16)
        vae = AutoencoderKL.from_pretrained(folder, subfolder="vae").to("cpu")
    return {"transformer": transformer, "text_encoder": encoder, "vae": vae}


def drop_everywhere(folder: Path) -> None:
    dropped(NAME)(folder)
    edit_json(folder / "transformer" / INDEX, lambda tree: tree["weight_map"].pop(NAME))


def drop_shard_from_index(folder: Path) -> None:
    shard = shard_of(folder, NAME).name

    def change(tree: dict[str, Any]) -> None:
        tree["weight_map"] = {name: file for name, file in tree["weight_map"].items() if file != shard}

    edit_json(folder / "transformer" / INDEX, change)


def rename_one(folder: Path) -> None:
    rewrite(shard_of(folder, NAME), lambda t: {f"model.{n}" if n == NAME else n: v for n, v in t.items()})


def rename_all(folder: Path) -> None:
    every_shard(folder, lambda t: {f"model.diffusion_model.{n}": v for n, v in t.items()})


def remove_shard(folder: Path) -> None:
    shard_of(folder, NAME).unlink()


def truncate(folder: Path) -> None:
    file = shard_of(folder, NAME)
    file.write_bytes(file.read_bytes()[:-100])


def empty(folder: Path) -> None:
    shard_of(folder, NAME).write_bytes(b"")


def lfs_pointer(folder: Path) -> None:
    (folder / "vae" / "diffusion_pytorch_model.safetensors").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    )


def page(folder: Path) -> None:
    (folder / "text_encoder" / "model.safetensors").write_text("<!DOCTYPE html><title>Sign in</title>")


def empty_tokenizer(folder: Path) -> None:
    for file in (folder / "tokenizer").iterdir():
        file.unlink()


SICK = {
    "key absent from shard and index": (drop_everywhere, "MDL001"),
    "key absent from shard only": (dropped(NAME), "MDL001"),
    "shard dropped from index": (drop_shard_from_index, "MDL001"),
    "one key renamed": (rename_one, "MDL001"),
    "all keys renamed": (rename_all, "MDL002"),
    "config with more layers": (configured("transformer", n_layers=6), "MDL001"),
    "config with siglip": (configured("transformer", siglip_feat_dim=24), "MDL001"),
    "wrong shape": (reshaped(NAME), "MDL002"),
    "shard missing": (remove_shard, "MDL003"),
    "index missing": (remove("transformer", INDEX), "MDL003"),
    "no config": (remove("transformer", "config.json"), "MDL003"),
    "no tokenizer": (remove("tokenizer"), "MDL003"),
    "empty tokenizer": (empty_tokenizer, "MDL003"),
    "no text encoder weights": (remove("text_encoder", "model.safetensors"), "MDL003"),
    "no vae": (remove("vae"), "MDL003"),
    "shard truncated": (truncate, "MDL004"),
    "shard empty": (empty, "MDL004"),
    "git-lfs pointer": (lfs_pointer, "MDL004"),
    "web page": (page, "MDL004"),
}


def key_only_missing_from_index(folder: Path) -> None:
    edit_json(folder / "transformer" / INDEX, lambda tree: tree["weight_map"].pop(NAME))


def other_shard_names(folder: Path) -> None:
    shard = shard_of(folder, NAME)
    shard.rename(shard.with_name("part two.safetensors"))
    text = (folder / "transformer" / INDEX).read_text()
    (folder / "transformer" / INDEX).write_text(text.replace(shard.name, "part two.safetensors"))


def bare_text_encoder_names(folder: Path) -> None:
    rewrite(
        folder / "text_encoder" / "model.safetensors", lambda t: {n.removeprefix("model."): v for n, v in t.items()}
    )


def old_vae_names(folder: Path) -> None:
    new = {".to_q.": ".query.", ".to_k.": ".key.", ".to_v.": ".value.", ".to_out.0.": ".proj_attn."}

    def old(name: str) -> str:
        for ours, theirs in new.items():
            name = name.replace(f"attentions.0{ours}", f"attentions.0{theirs}")
        return name

    rewrite(folder / "vae" / "diffusion_pytorch_model.safetensors", lambda t: {old(n): v for n, v in t.items()})


def vocabulary_in_two_files(folder: Path) -> None:
    tokens = folder / "tokenizer"
    model = json.loads((tokens / "tokenizer.json").read_text())["model"]
    (tokens / "vocab.json").write_text(json.dumps(model["vocab"]))
    (tokens / "merges.txt").write_text("\n".join(m if isinstance(m, str) else " ".join(m) for m in model["merges"]))
    (tokens / "tokenizer.json").unlink()


def links(folder: Path) -> None:
    """As a hub snapshot lies: every file a link elsewhere."""
    for file in [f for f in folder.rglob("*") if f.is_file()]:
        target = folder.parent / "blobs" / str(file.relative_to(folder)).replace("/", "_")
        target.parent.mkdir(exist_ok=True)
        file.rename(target)
        file.symlink_to(target)


WELL = {
    "untouched": untouched,
    "extra key": one_more_beside(NAME),
    "key only missing from index": key_only_missing_from_index,
    "other shard names": other_shard_names,
    "bare text encoder names": bare_text_encoder_names,
    "untied head absent": configured("text_encoder", tie_word_embeddings=False),
    "eight bit without scales": eight_bit_without_scales,
    "old vae names": old_vae_names,
    "vocabulary in two files": vocabulary_in_two_files,
    "links": links,
}

ZIMAGE = Family(("zimage",), healthy, load, SICK, WELL)
