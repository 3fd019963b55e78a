"""A small SDXL in a diffusers folder, and the same weights in one file as its authors published it."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

from zdoctor.doctor.families.components.autoencoder_kl import VAE
from zdoctor.doctor.families.components.clip_text import open_clip_name
from zdoctor.doctor.families.models.stable_diffusion import SDXL_CONFIG
from zdoctor.doctor.families.record.single_file import original_parts
from zdoctor.tests import sdxl

from .parts import tensors_of, transformer_tensors, vae_tensors, write

ONE, TWO = 64, 128  # widths of the text encoders


def sdxl_model(folder: Path, whole: Path, depths: Sequence[int] = (1, 1, 2)) -> Path:
    """Its heads and groups are as wide as published; tokenizers and scheduler are those of another folder."""
    for name in ("tokenizer", "tokenizer_2", "scheduler"):
        shutil.copytree(whole / name, folder / name)
    shutil.copy(whole / "model_index.json", folder)
    clip = {"num_hidden_layers": 3, "vocab_size": 9, "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1}
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(21)
        sizes = {
            "sample_size": 8,
            "block_out_channels": [64, 128, 192],
            "attention_head_dim": [1, 2, 3],
            "transformer_layers_per_block": list(depths),
            "cross_attention_dim": ONE + TWO,
            "projection_class_embeddings_input_dim": 6 * 256 + TWO,
        }
        sdxl.UNet2DConditionModel(**{**SDXL_CONFIG, **sizes}).save_pretrained(folder / "unet")
        small = {"block_out_channels": (32, 32, 32, 64), "layers_per_block": 1, "latent_channels": 4}
        more = {"use_quant_conv": True, "use_post_quant_conv": True, "scaling_factor": 0.13025, "shift_factor": None}
        sdxl.AutoencoderKL(**{**VAE, **small, **more}).save_pretrained(folder / "vae")
        one = CLIPTextConfig(
            hidden_size=ONE, intermediate_size=80, num_attention_heads=1, hidden_act="quick_gelu", **clip
        )
        CLIPTextModel(one).save_pretrained(folder / "text_encoder")
        two = {"hidden_size": TWO, "intermediate_size": 96, "num_attention_heads": 2, "projection_dim": TWO}
        CLIPTextModelWithProjection(CLIPTextConfig(**two, hidden_act="gelu", **clip)).save_pretrained(
            folder / "text_encoder_2"
        )
    return folder


def sdxl_file(model: Path, file: Path) -> Path:
    """All parts of the folder, with what lies beside them in published files."""
    held = tensors_of(model / "text_encoder_2")
    held = {name.removeprefix("text_model."): value for name, value in held.items()}
    made = transformer_tensors(model / "unet", "UNet2DConditionModel", prefix="model.diffusion_model.")
    made |= {f"first_stage_model.{name}": value for name, value in vae_tensors(model / "vae").items()}
    first = "conditioner.embedders.0.transformer.text_model."
    made |= {
        first + name.removeprefix("text_model."): value for name, value in tensors_of(model / "text_encoder").items()
    }
    made[f"{first}embeddings.position_ids"] = torch.arange(77)[None]
    second: dict[str, Tensor] = {
        name: torch.cat([held[part] for part in of]) for name, of in original_parts(open_clip_name, held).items()
    }
    second["text_projection"] = second["text_projection"].T
    second["logit_scale"] = torch.zeros(())
    made |= {f"conditioner.embedders.1.model.{name}": value for name, value in second.items()}
    return write(file, made)
