"""Tiny Qwen-Image and FLUX.2 whose components are files of their own, as musubi-tuner takes them.

What no shape tells (the axes of positions, the widths of heads, the numbers that scale latents) is as published.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoTokenizer,
    Mistral3Config,
    Mistral3ForConditionalGeneration,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from zdoctor.doctor.families import classes
from zdoctor.doctor.families.components.latents import wan_vae_name
from zdoctor.tests import flux2, qwen_image

from .parts import tensors_of, transformer_tensors, write

HEAD = 128
LANGUAGE: dict[str, Any] = {
    "hidden_size": HEAD,
    "intermediate_size": 96,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
}


def qwen_image_model(folder: Path, whole: Path) -> Path:
    """Its tokenizer and scheduler are those of another folder; its text encoder sees, too."""
    for name in ("tokenizer", "scheduler"):
        shutil.copytree(whole / name, folder / name)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder / "tokenizer")
    tokenizer.add_special_tokens({"additional_special_tokens": list(qwen_image.SHOWN)})
    tokenizer.save_pretrained(folder / "tokenizer")
    start, pad, end = (int(tokenizer.convert_tokens_to_ids(token)) for token in qwen_image.SHOWN)
    sizes = {"in_channels": 64, "out_channels": 16, "num_layers": 2, "axes_dims_rope": [16, 56, 56]}
    heads = {"attention_head_dim": HEAD, "num_attention_heads": 1, "joint_attention_dim": HEAD}
    mrope = {"type": "mrope", "mrope_section": [16, 24, 24]}
    text = {**LANGUAGE, "num_hidden_layers": 2, "vocab_size": len(tokenizer), "rope_scaling": mrope}
    vision = {"depth": 1, "hidden_size": 80, "intermediate_size": 24, "num_heads": 1, "out_hidden_size": HEAD}
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(11)
        qwen_image.QwenImageTransformer2DModel(**sizes, **heads).save_pretrained(folder / "transformer")
        qwen_image.AutoencoderKLQwenImage(base_dim=8, z_dim=16).save_pretrained(folder / "vae")
        config = Qwen2_5_VLConfig(
            text_config={**text, "rope_theta": 1_000_000.0, "max_position_embeddings": 128_000, "rms_norm_eps": 1e-6},
            vision_config={**vision, "tokens_per_second": 2},
            image_token_id=pad,
            vision_start_token_id=start,
            vision_end_token_id=end,
            tie_word_embeddings=False,
        )
        Qwen2_5_VLForConditionalGeneration(config).save_pretrained(folder / "text_encoder")
    return folder


def flux2_model(folder: Path, whole: Path, *, dev: bool) -> Path:
    """Klein, or dev; its tokenizer and scheduler are those of another folder."""
    for name in ("tokenizer", "scheduler"):
        shutil.copytree(whole / name, folder / name)
    words = len(AutoTokenizer.from_pretrained(folder / "tokenizer"))
    heads = {"attention_head_dim": HEAD, "num_attention_heads": 1, "axes_dims_rope": [32, 32, 32, 32]}
    sizes = {"in_channels": 16, "num_layers": 1, "num_single_layers": 1, "joint_attention_dim": 3 * HEAD}
    text = {**LANGUAGE, "vocab_size": words, "head_dim": HEAD, "num_hidden_layers": 31 if dev else 28}
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(12)
        made = flux2.Flux2Transformer2DModel(**sizes, **heads, guidance_embeds=dev)
        made.save_pretrained(folder / "transformer")
        vae = flux2.AutoencoderKLFlux2(block_out_channels=(32, 64, 96, 96), latent_channels=4)
        vae.bn.running_mean.normal_()
        vae.bn.running_var.uniform_(0.3, 3.0)
        vae.save_pretrained(folder / "vae")
        if dev:
            vision = {**flux2.VISION, "hidden_size": 64, "head_dim": 64, "patch_size": 14, "image_size": 1540}
            rope = {"rope_theta": 1_000_000_000.0, "max_position_embeddings": 131_072, "sliding_window": None}
            language = {**text, **rope, "model_type": "mistral", "rms_norm_eps": 1e-5}
            config = Mistral3Config(text_config=language, vision_config=vision, tie_word_embeddings=False)
            Mistral3ForConditionalGeneration(config).save_pretrained(folder / "text_encoder")
        else:
            settings: Any = Qwen3Config
            qwen = settings(
                **text,
                rope_theta=1_000_000,
                max_position_embeddings=40_960,
                tie_word_embeddings=True,
                rms_norm_eps=1e-6,
            )
            Qwen3ForCausalLM(qwen).save_pretrained(folder / "text_encoder")
    return folder


def files_of(model: Path, folder: Path, class_name: str, vae_name: Callable[[str], str] | None) -> dict[str, Path]:
    """The files of such a model by the options of musubi-tuner; of the VAE with the names that `vae_name` gives."""
    folder.mkdir()
    held = tensors_of(model / "vae")
    if vae_name is None:
        shapes = {name: tuple(value.shape) for name, value in held.items()}
        present = {"encoder.down.0.block.0.conv1.weight"}
        named = classes()["AutoencoderKLFlux2"].in_file(shapes, present)
        vae = {name: held[ours].reshape(shape) for ours, (name, shape) in zip(held, named.items(), strict=True)}
    else:
        vae = {vae_name(name): value for name, value in held.items()}
    return {
        "dit": write(folder / "dit.safetensors", transformer_tensors(model / "transformer", class_name)),
        "text_encoder": write(folder / "text.safetensors", tensors_of(model / "text_encoder")),
        "vae": write(folder / "vae.safetensors", vae),
    }


QWEN_NAMES = wan_vae_name
