"""A tiny real Qwen-Image pipeline for tests: diffusers' and transformers' own classes with made-up weights."""

from __future__ import annotations

import json
import shutil
import tempfile
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import torch
from diffusers.models.autoencoders import autoencoder_kl_qwenimage
from diffusers.models.transformers import transformer_qwenimage
from diffusers.schedulers import scheduling_flow_match_euler_discrete as schedulers
from transformers import AutoTokenizer, Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen2Tokenizer

from zdoctor.doctor.demo.tiny import _tokenizer
from zdoctor.doctor.families.qwen_image.record import QWEN_IMAGE

FlowMatchEulerDiscreteScheduler: Any = schedulers.FlowMatchEulerDiscreteScheduler
QwenImageTransformer2DModel: Any = transformer_qwenimage.QwenImageTransformer2DModel
AutoencoderKLQwenImage: Any = autoencoder_kl_qwenimage.AutoencoderKLQwenImage

TINY: dict[str, Any] = {
    "in_channels": 16,
    "out_channels": 4,
    "num_layers": 3,
    "attention_head_dim": 8,
    "num_attention_heads": 2,
    "joint_attention_dim": 24,
    "axes_dims_rope": [2, 2, 4],
}
TEXT: dict[str, Any] = {
    "hidden_size": 24,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 8,
    "rope_scaling": {"type": "mrope", "mrope_section": [2, 2, 2]},
}
VISION: dict[str, Any] = {
    "depth": 2,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_heads": 2,
    "out_hidden_size": 24,
}


@cache
def healthy_qwen_image() -> Path:
    """The undamaged tiny pipeline; never to be written to."""
    folder = Path(tempfile.mkdtemp(prefix="zdoctor-qwen-")) / "Qwen-Image-Tiny"
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        QwenImageTransformer2DModel(**TINY).save_pretrained(folder / "transformer", max_shard_size="30KB")
        AutoencoderKLQwenImage(base_dim=8, z_dim=4).save_pretrained(folder / "vae")
        config = Qwen2_5_VLConfig(text_config=TEXT, vision_config=VISION, tie_word_embeddings=False)
        Qwen2_5_VLForConditionalGeneration(config).save_pretrained(folder / "text_encoder")
    tokens = folder / "tokenizer"
    tokens.mkdir()
    (tokens / "vocab.json").write_text(json.dumps({"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3}))
    (tokens / "merges.txt").write_text("#version: 0.2\na b\n")
    (tokens / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "Qwen2Tokenizer"}))
    return folder


def trainable_qwen_image(folder: Path) -> Path:
    """A copy with a tokenizer that knows every letter, a VAE of as many channels, and a model_index.json."""
    shutil.copytree(healthy_qwen_image(), folder)
    for part in ("tokenizer", "text_encoder", "vae"):
        shutil.rmtree(folder / part)
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(1)
        words = _tokenizer(folder / "tokenizer")
        text = Qwen2_5_VLConfig(text_config=TEXT | {"vocab_size": words}, vision_config=VISION)
        Qwen2_5_VLForConditionalGeneration(text).save_pretrained(folder / "text_encoder")
        spread = {"latents_mean": [0.1, -0.2, 0.3, 0.0], "latents_std": [0.5, 0.6, 0.7, 0.8]}
        AutoencoderKLQwenImage(base_dim=8, z_dim=4, **spread).save_pretrained(folder / "vae")
    FlowMatchEulerDiscreteScheduler(**QWEN_IMAGE.scheduler({})).save_pretrained(folder / "scheduler")
    parts = {
        "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
        "text_encoder": ["transformers", "Qwen2_5_VLForConditionalGeneration"],
        "tokenizer": ["transformers", "Qwen2Tokenizer"],
        "transformer": ["diffusers", "QwenImageTransformer2DModel"],
        "vae": ["diffusers", "AutoencoderKLQwenImage"],
    }
    (folder / "model_index.json").write_text(json.dumps({"_class_name": "QwenImagePipeline", **parts}))
    return folder


SHOWN = ("<|vision_start|>", "<|image_pad|>", "<|vision_end|>")


def trainable_qwen_image_edit(folder: Path) -> Path:
    """The same of a model that edits pictures: its tokenizer knows where an image stands, its text encoder sees."""
    trainable_qwen_image(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
    tokenizer.add_special_tokens({"additional_special_tokens": list(SHOWN)})
    tokenizer.save_pretrained(folder / "tokenizer")
    start, pad, end = (int(tokenizer.convert_tokens_to_ids(token)) for token in SHOWN)
    shutil.rmtree(folder / "text_encoder")
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(2)
        config = Qwen2_5_VLConfig(
            text_config=TEXT | {"vocab_size": len(tokenizer)},
            vision_config=VISION | {"fullatt_block_indexes": [1]},
            image_token_id=pad,
            vision_start_token_id=start,
            vision_end_token_id=end,
        )
        Qwen2_5_VLForConditionalGeneration(config).save_pretrained(folder / "text_encoder")
    return folder


def load_qwen_image(folder: Path) -> dict[str, Any]:
    """What ai-toolkit's loader does, ending with the move that meta tensors fail; the models it made."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transformer = QwenImageTransformer2DModel.from_pretrained(folder / "transformer", torch_dtype=torch.bfloat16)
        transformer.to("cpu")
        assert not any(parameter.is_meta for parameter in transformer.parameters())
        tokenizer = Qwen2Tokenizer.from_pretrained(folder, subfolder="tokenizer")
        text = Qwen2_5_VLForConditionalGeneration.from_pretrained(
            folder, subfolder="text_encoder", dtype=torch.bfloat16
        )
        vae = AutoencoderKLQwenImage.from_pretrained(folder, subfolder="vae", torch_dtype=torch.bfloat16)
        vae.to("cpu")
    return {"transformer": transformer, "text_encoder": text, "tokenizer": tokenizer, "vae": vae}
