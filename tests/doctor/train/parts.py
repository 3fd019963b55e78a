"""Tiny models of which each part lies in a diffusers folder and, under its authors' names, in a file of its own.

What no shape tells (the axes of positions, the widths of heads, the factors of latents) is as published.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
from diffusers.models.transformers.transformer_z_image import ZImageTransformer2DModel
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import CLIPTextConfig, CLIPTextModel, Qwen3Config, Qwen3ForCausalLM, T5Config, T5EncoderModel

from zdoctor.doctor.families import classes
from zdoctor.doctor.families.components.autoencoder_kl import VAE, original_names
from zdoctor.doctor.families.record.single_file import original_parts
from zdoctor.tests.chroma import TINY as TINY_CHROMA
from zdoctor.tests.chroma import ChromaTransformer2DModel
from zdoctor.tests.flux import FluxTransformer2DModel

WORDS = 8  # of the tiny tokenizers of Flux


def flux_model(folder: Path, tokenizers: Path, *, guided: bool = True) -> Path:
    """A Flux of one head; its tokenizers and scheduler are those of another folder."""
    for name in ("tokenizer", "tokenizer_2", "scheduler"):
        shutil.copytree(tokenizers / name, folder / name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        FluxTransformer2DModel(
            in_channels=64,
            num_layers=1,
            num_single_layers=2,
            attention_head_dim=128,
            num_attention_heads=1,
            joint_attention_dim=24,
            pooled_projection_dim=64,
            guidance_embeds=guided,
        ).save_pretrained(folder / "transformer", max_shard_size="2MB")
        clip = CLIPTextConfig(
            hidden_size=64,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=1,
            vocab_size=WORDS,
            bos_token_id=0,
            eos_token_id=2,
        )
        CLIPTextModel(clip).save_pretrained(folder / "text_encoder")
        t5 = T5Config(
            d_model=24, d_kv=4, d_ff=16, num_layers=2, num_heads=2, vocab_size=WORDS, feed_forward_proj="gated-gelu"
        )
        T5EncoderModel(t5).save_pretrained(folder / "text_encoder_2")
    _vae(folder / "vae")
    return folder


def zimage_model(folder: Path, tiny: Path) -> Path:
    """A Z-Image of one head; its tokenizer and scheduler are those of another folder."""
    for name in ("tokenizer", "scheduler"):
        shutil.copytree(tiny / name, folder / name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(6)
        ZImageTransformer2DModel(
            dim=128,
            n_heads=1,
            n_kv_heads=1,
            n_layers=2,
            n_refiner_layers=1,
            cap_feat_dim=32,
            axes_dims=[32, 48, 48],
            axes_lens=[1536, 512, 512],
        ).save_pretrained(str(folder / "transformer"), max_shard_size="1MB")
        settings: Any = Qwen3Config  # its annotations leave rope_theta out
        qwen = settings(
            vocab_size=400,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=3,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=16,
            max_position_embeddings=40960,
            rope_theta=1_000_000,
            tie_word_embeddings=True,
            initializer_range=0.2,
        )
        Qwen3ForCausalLM(qwen).save_pretrained(folder / "text_encoder")
    _vae(folder / "vae")
    return folder


def _vae(folder: Path) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        make: Any = AutoencoderKL
        small = {"block_out_channels": (32, 32, 32, 64), "layers_per_block": 1}
        make(**{**VAE, **small}, scaling_factor=0.3611, shift_factor=0.1159).save_pretrained(str(folder))


def tensors_of(folder: Path) -> dict[str, Tensor]:
    """All tensors of a component's files."""
    return {name: value for file in folder.glob("*.safetensors") for name, value in load_file(file).items()}


def transformer_tensors(folder: Path, class_name: str, prefix: str = "") -> dict[str, Tensor]:
    """Of a transformer's folder, under the names of its authors' file."""
    held = tensors_of(folder)

    def value(name: str) -> Tensor:
        tensor = held[name]
        return torch.cat(tensor.chunk(2)[::-1]) if name in classes()[class_name].swapped else tensor

    return {
        prefix + o: torch.cat([value(n) for n in ns])
        for o, ns in original_parts(classes()[class_name].original, held).items()
    }


def vae_tensors(folder: Path) -> dict[str, Tensor]:
    """Of a VAE's folder, under the names of its authors' file."""
    held = tensors_of(folder)
    names = original_names({name: tuple(value.shape) for name, value in held.items()})
    return {name: held[ours].reshape(shape) for ours, (name, shape) in zip(held, names.items(), strict=True)}


def write(file: Path, tensors: dict[str, Tensor]) -> Path:
    save_file({name: value.contiguous() for name, value in tensors.items()}, file, metadata={"format": "pt"})
    return file


def shards(folder: Path, tensors: dict[str, Tensor], count: int = 2) -> Path:
    """A numbered set of files without an index; its first."""
    names = sorted(tensors)
    made = [
        write(
            folder / f"model-{number + 1:05d}-of-{count:05d}.safetensors",
            {name: tensors[name] for name in names[number::count]},
        )
        for number in range(count)
    ]
    return made[0]


def chroma_model(folder: Path, whole: Path) -> Path:
    """A Chroma of one head; its T5 and its tokenizer are those of another folder."""
    for name in ("tokenizer", "text_encoder", "scheduler"):
        shutil.copytree(whole / name, folder / name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(8)
        published = {"in_channels": 64, "attention_head_dim": 128, "num_attention_heads": 1}
        made = ChromaTransformer2DModel(**{**TINY_CHROMA, **published, "axes_dims_rope": [16, 56, 56]})
        made.save_pretrained(folder / "transformer", max_shard_size="2MB")
    _vae(folder / "vae")
    return folder


def chroma_parts(model: Path, folder: Path) -> dict[str, Path]:
    """The files of Chroma as sd-scripts takes them, by the names of the parts."""
    folder.mkdir()
    held = transformer_tensors(model / "transformer", "ChromaTransformer2DModel")
    return {
        "transformer": write(folder / "Chroma.safetensors", held),
        "text_encoder": write(folder / "t5xxl.safetensors", tensors_of(model / "text_encoder")),
        "vae": write(folder / "ae.safetensors", vae_tensors(model / "vae")),
    }


def flux_parts(model: Path, folder: Path) -> dict[str, Path]:
    """The files of Flux as sd-scripts takes them, and its tokenizers, by the names of the parts."""
    folder.mkdir()
    clip = {
        f"text_model.{name.removeprefix('text_model.')}": v for name, v in tensors_of(model / "text_encoder").items()
    }
    clip |= {"text_projection.weight": torch.zeros(2, 2), "logit_scale": torch.zeros(())}  # ComfyUI keeps these, too
    t5 = tensors_of(model / "text_encoder_2")
    return {
        "transformer": write(
            folder / "flux1-dev.safetensors", transformer_tensors(model / "transformer", "FluxTransformer2DModel")
        ),
        "text_encoder": write(folder / "clip_l.safetensors", clip),
        "text_encoder_2": write(
            folder / "t5xxl.safetensors", {**t5, "encoder.embed_tokens.weight": t5["shared.weight"].clone()}
        ),
        "vae": write(folder / "ae.safetensors", vae_tensors(model / "vae")),
        "tokenizer": model / "tokenizer",
        "tokenizer_2": model / "tokenizer_2",
    }


def zimage_parts(model: Path, folder: Path) -> dict[str, Path]:
    """The files of Z-Image as musubi-tuner takes them, and its tokenizer, by the names of the parts."""
    folder.mkdir()
    return {
        "transformer": write(
            folder / "z_image.safetensors", transformer_tensors(model / "transformer", "ZImageTransformer2DModel")
        ),
        "text_encoder": shards(folder, tensors_of(model / "text_encoder")),
        "vae": write(folder / "ae.safetensors", vae_tensors(model / "vae")),
        "tokenizer": model / "tokenizer",
    }


def same(ours: nn.Module, theirs: nn.Module) -> bool:
    """Whether two models hold the same numbers under the same names."""
    mine, others = ours.state_dict(), theirs.state_dict()
    return mine.keys() == others.keys() and all(torch.equal(value, others[name]) for name, value in mine.items())
