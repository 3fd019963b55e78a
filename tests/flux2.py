"""Tiny real pipelines of FLUX.2 Klein and dev: diffusers' and transformers' own classes with made-up weights."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import torch
from diffusers.models.autoencoders import autoencoder_kl_flux2
from diffusers.models.transformers import transformer_flux2
from diffusers.schedulers import scheduling_flow_match_euler_discrete as schedulers
from transformers import (
    AutoTokenizer,
    Mistral3Config,
    Mistral3ForConditionalGeneration,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from zdoctor.doctor.demo.tiny import _tokenizer
from zdoctor.doctor.families.models.flux2_in_diffusers import KLEIN_4B

FlowMatchEulerDiscreteScheduler: Any = schedulers.FlowMatchEulerDiscreteScheduler
Flux2Transformer2DModel: Any = transformer_flux2.Flux2Transformer2DModel
AutoencoderKLFlux2: Any = autoencoder_kl_flux2.AutoencoderKLFlux2

TINY: dict[str, Any] = {
    "in_channels": 16,
    "num_layers": 2,
    "num_single_layers": 2,
    "attention_head_dim": 8,
    "num_attention_heads": 2,
    "joint_attention_dim": 24,
    "guidance_embeds": False,
    "axes_dims_rope": [2, 2, 2, 2],
}
VAE: dict[str, Any] = {
    "block_out_channels": (4, 8, 16, 16),
    "layers_per_block": 2,
    "latent_channels": 4,
    "norm_num_groups": 4,
}
# Its hidden states of the layers 9, 18 and 27 are what the transformer reads.
TEXT: dict[str, Any] = {
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 28,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 4,
}


# The same of dev's Mistral: of the layers 10, 20 and 30.
MISTRAL: dict[str, Any] = {**TEXT, "model_type": "mistral", "num_hidden_layers": 31}
VISION: dict[str, Any] = {
    "model_type": "pixtral",
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "head_dim": 8,
}
TEMPLATE = (
    "{% for message in messages %}{% for part in message['content'] %}"
    "{% if message['role'] == 'system' %}[SYSTEM_PROMPT]{{ part['text'] }}[/SYSTEM_PROMPT]"
    "{% else %}[INST]{{ part['text'] }}[/INST]{% endif %}{% endfor %}{% endfor %}"
)


def trainable_flux2_dev(folder: Path) -> Path:
    """The pipeline of dev in small: another transformer, text encoder and chat template."""
    trainable_flux2(folder)
    for name in ("transformer", "text_encoder"):
        shutil.rmtree(folder / name)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder / "tokenizer")
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder / "tokenizer")
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        made = Flux2Transformer2DModel(**{**TINY, "guidance_embeds": True})
        made.save_pretrained(folder / "transformer", max_shard_size="30KB")
        text = {**MISTRAL, "vocab_size": len(tokenizer)}
        config = Mistral3Config(
            text_config=text, vision_config=VISION, tie_word_embeddings=False, image_token_index=0
        )
        Mistral3ForConditionalGeneration(config).save_pretrained(folder / "text_encoder")
    index = json.loads((folder / "model_index.json").read_text())
    index |= {"_class_name": "Flux2Pipeline", "text_encoder": ["transformers", "Mistral3ForConditionalGeneration"]}
    (folder / "model_index.json").write_text(json.dumps(index))
    return folder


def trainable_flux2(folder: Path) -> Path:
    """The pipeline of Klein in small, with a tokenizer that knows every letter."""
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        Flux2Transformer2DModel(**TINY).save_pretrained(folder / "transformer", max_shard_size="30KB")
        vae = AutoencoderKLFlux2(**VAE)
        vae.bn.running_mean.normal_()
        vae.bn.running_var.uniform_(0.3, 3.0)
        vae.save_pretrained(folder / "vae")
        words = _tokenizer(folder / "tokenizer")
        Qwen3ForCausalLM(Qwen3Config(**TEXT, vocab_size=words)).save_pretrained(folder / "text_encoder")
    FlowMatchEulerDiscreteScheduler(**KLEIN_4B.scheduler({})).save_pretrained(folder / "scheduler")
    parts = {
        "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
        "text_encoder": ["transformers", "Qwen3ForCausalLM"],
        "tokenizer": ["transformers", "Qwen2TokenizerFast"],
        "transformer": ["diffusers", "Flux2Transformer2DModel"],
        "vae": ["diffusers", "AutoencoderKLFlux2"],
    }
    (folder / "model_index.json").write_text(json.dumps({"_class_name": "Flux2KleinPipeline", **parts}))
    return folder
