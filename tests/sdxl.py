"""A tiny real SDXL pipeline for tests: diffusers' and transformers' own classes with made-up weights."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from diffusers.models.autoencoders import autoencoder_kl
from diffusers.models.unets import unet_2d_condition
from diffusers.schedulers import scheduling_euler_discrete as schedulers
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

from zdoctor.doctor.families.components.autoencoder_kl import VAE
from zdoctor.doctor.families.models.stable_diffusion import SDXL, SDXL_CONFIG

UNet2DConditionModel: Any = unet_2d_condition.UNet2DConditionModel
AutoencoderKL: Any = autoencoder_kl.AutoencoderKL
EulerDiscreteScheduler: Any = schedulers.EulerDiscreteScheduler

TINY: dict[str, Any] = {
    **SDXL_CONFIG,
    "sample_size": 8,
    "block_out_channels": [4, 8, 16],
    "attention_head_dim": [1, 2, 4],
    "norm_num_groups": 2,
    "cross_attention_dim": 20,
    "addition_time_embed_dim": 4,
    "projection_class_embeddings_input_dim": 6 * 4 + 12,
}
_CLIP: dict[str, Any] = {
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "vocab_size": 9,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
_WORDS = ("<|startoftext|>", "<|endoftext|>", "!", "a</w>", "b</w>", "a", "ab</w>", "c</w>", "d</w>")


def trainable_sdxl(folder: Path, depths: Sequence[int] = (1, 1, 1)) -> Path:
    """The pipeline of SDXL in small, with so many blocks in each of a level's attentions (published: 1, 2, 10)."""
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        unet = UNet2DConditionModel(**{**TINY, "transformer_layers_per_block": list(depths)})
        unet.save_pretrained(folder / "unet", max_shard_size="60KB")
        small = {"block_out_channels": (4, 4, 4, 4), "layers_per_block": 1, "norm_num_groups": 2}
        more = {"latent_channels": 4, "use_quant_conv": True, "use_post_quant_conv": True, "scaling_factor": 0.13025}
        AutoencoderKL(**{**VAE, "shift_factor": None, **more, **small}).save_pretrained(folder / "vae")
        one = CLIPTextConfig(hidden_size=8, intermediate_size=12, **_CLIP)
        CLIPTextModel(one).save_pretrained(folder / "text_encoder")
        other = CLIPTextConfig(hidden_size=12, intermediate_size=16, projection_dim=12, **_CLIP)
        CLIPTextModelWithProjection(other).save_pretrained(folder / "text_encoder_2")
    for name, filler in (("tokenizer", "<|endoftext|>"), ("tokenizer_2", "!")):
        tokens = folder / name
        tokens.mkdir()
        (tokens / "vocab.json").write_text(json.dumps({word: number for number, word in enumerate(_WORDS)}))
        (tokens / "merges.txt").write_text("#version: 0.2\na b</w>\n")
        made = {"tokenizer_class": "CLIPTokenizer", "model_max_length": 77, "pad_token": filler}
        (tokens / "tokenizer_config.json").write_text(json.dumps(made))
    EulerDiscreteScheduler(**{k: v for k, v in SDXL.scheduler({}).items() if k[0] != "_"}).save_pretrained(
        folder / "scheduler"
    )
    parts = {
        "scheduler": ["diffusers", "EulerDiscreteScheduler"],
        "text_encoder": ["transformers", "CLIPTextModel"],
        "text_encoder_2": ["transformers", "CLIPTextModelWithProjection"],
        "tokenizer": ["transformers", "CLIPTokenizer"],
        "tokenizer_2": ["transformers", "CLIPTokenizer"],
        "unet": ["diffusers", "UNet2DConditionModel"],
        "vae": ["diffusers", "AutoencoderKL"],
    }
    (folder / "model_index.json").write_text(json.dumps({"_class_name": "StableDiffusionXLPipeline", **parts}))
    return folder
