"""A tiny real Flux pipeline for tests: diffusers' and transformers' own classes with made-up weights."""

from __future__ import annotations

import json
import shutil
import tempfile
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers
from diffusers.models.autoencoders import autoencoder_kl
from diffusers.models.transformers import transformer_flux
from diffusers.schedulers import scheduling_flow_match_euler_discrete as schedulers
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer, T5Config, T5EncoderModel

from zdoctor.doctor.families.components.autoencoder_kl import VAE

T5TokenizerFast: Any = transformers.T5TokenizerFast
FluxTransformer2DModel: Any = transformer_flux.FluxTransformer2DModel
AutoencoderKL: Any = autoencoder_kl.AutoencoderKL
FlowMatchEulerDiscreteScheduler: Any = schedulers.FlowMatchEulerDiscreteScheduler

DEV: dict[str, Any] = {
    "in_channels": 16,
    "num_layers": 2,
    "num_single_layers": 3,
    "attention_head_dim": 8,
    "num_attention_heads": 2,
    "joint_attention_dim": 24,
    "pooled_projection_dim": 20,
    "axes_dims_rope": [2, 2, 4],
    "guidance_embeds": True,
}


@cache
def healthy_flux() -> Path:
    """The undamaged tiny pipeline (FLUX.1-dev in small); never to be written to."""
    folder = Path(tempfile.mkdtemp(prefix="zdoctor-flux-")) / "Flux-Tiny"
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        FluxTransformer2DModel(**DEV).save_pretrained(folder / "transformer", max_shard_size="30KB")
        AutoencoderKL(block_out_channels=[32], latent_channels=4, use_quant_conv=False).save_pretrained(
            folder / "vae"
        )
        clip = CLIPTextConfig(
            hidden_size=20, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, vocab_size=8
        )
        CLIPTextModel(clip).save_pretrained(folder / "text_encoder")
        t5 = T5Config(
            d_model=24, d_kv=4, d_ff=16, num_layers=2, num_heads=2, vocab_size=8, feed_forward_proj="gated-gelu"
        )
        T5EncoderModel(t5).save_pretrained(folder / "text_encoder_2")
    words: dict[str, int] = {"<|startoftext|>": 0, "<|endoftext|>": 1, "a</w>": 2, "b</w>": 3, "a": 4, "ab</w>": 5}
    tokens = folder / "tokenizer"
    tokens.mkdir()
    (tokens / "vocab.json").write_text(json.dumps(words))
    (tokens / "merges.txt").write_text("#version: 0.2\na b</w>\n")
    (tokens / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "CLIPTokenizer"}))
    pieces: Any = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁a", -1.0), ("▁b", -1.0)]
    T5TokenizerFast(vocab=pieces, extra_ids=0).save_pretrained(folder / "tokenizer_2")
    FlowMatchEulerDiscreteScheduler().save_pretrained(folder / "scheduler")
    return folder


def copy_flux(folder: Path) -> Path:
    """A copy of the healthy pipeline in which every file may be changed."""
    shutil.copytree(healthy_flux(), folder)
    return folder


def trainable_flux(folder: Path) -> Path:
    """A copy with a VAE that shrinks eightfold as the real one does, CLIP's 77 tokens, and a model_index.json."""
    copy_flux(folder)
    shutil.rmtree(folder / "vae")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        channels = {"block_out_channels": (8, 8, 8, 8), "latent_channels": DEV["in_channels"] // 4}
        small = {**channels, "layers_per_block": 1, "norm_num_groups": 4}
        AutoencoderKL(**{**VAE, **small}, scaling_factor=0.5, shift_factor=0.1).save_pretrained(folder / "vae")
    clip = {"tokenizer_class": "CLIPTokenizer", "model_max_length": 77}
    (folder / "tokenizer" / "tokenizer_config.json").write_text(json.dumps(clip))
    FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True).save_pretrained(folder / "scheduler")
    parts = {
        "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
        "text_encoder": ["transformers", "CLIPTextModel"],
        "text_encoder_2": ["transformers", "T5EncoderModel"],
        "tokenizer": ["transformers", "CLIPTokenizer"],
        "tokenizer_2": ["transformers", "T5TokenizerFast"],
        "transformer": ["diffusers", "FluxTransformer2DModel"],
        "vae": ["diffusers", "AutoencoderKL"],
    }
    (folder / "model_index.json").write_text(json.dumps({"_class_name": "FluxPipeline", **parts}))
    return folder


def load_flux(folder: Path) -> dict[str, Any]:
    """What ai-toolkit's Flux loader does, ending with the move that meta tensors fail; the models it made."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        below = folder / "transformer" if folder.exists() else folder
        transformer = FluxTransformer2DModel.from_pretrained(
            below, subfolder=None if folder.exists() else "transformer", torch_dtype=torch.bfloat16
        )
        transformer.to("cpu")
        assert not any(parameter.is_meta for parameter in transformer.parameters())
        FlowMatchEulerDiscreteScheduler.from_pretrained(folder, subfolder="scheduler")
        vae = AutoencoderKL.from_pretrained(folder, subfolder="vae", torch_dtype=torch.bfloat16)
        vae.to("cpu")
        long = T5TokenizerFast.from_pretrained(folder, subfolder="tokenizer_2")
        t5 = T5EncoderModel.from_pretrained(folder, subfolder="text_encoder_2", dtype=torch.bfloat16)
        clip = CLIPTextModel.from_pretrained(folder, subfolder="text_encoder", dtype=torch.bfloat16)
        short = CLIPTokenizer.from_pretrained(folder, subfolder="tokenizer")
    return {
        "transformer": transformer,
        "vae": vae,
        "text_encoder": clip,
        "text_encoder_2": t5,
        "tokenizer": short,
        "tokenizer_2": long,
    }
