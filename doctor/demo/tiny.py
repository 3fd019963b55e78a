"""A whole Z-Image pipeline of a few megabytes: the real classes with made-up weights.

It has every part of the real thing (a sharded transformer with its index, a VAE, a Qwen3 text encoder, a byte-level
tokenizer with a chat template, a scheduler), so whatever loads, checks or trains Z-Image can be tried on it in
seconds. The pictures it paints are noise. Weights come from the seed alone. Needs the `train` extra (torch,
diffusers, transformers); nothing is downloaded.
"""

from __future__ import annotations

import json
import os
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..families.components.autoencoder_kl import VAE

if TYPE_CHECKING:
    from torch import Tensor

LAYERS = 2
DIM = 96
FEED_FORWARD = 256
CAPTION_DIM = 32
LATENT_CHANNELS: int = VAE["latent_channels"]
ADAPTER_RANK = 4

# Every Linear of a layer with its (out, in) shape: what a Z-Image LoRA covers.
LINEARS: dict[str, tuple[int, int]] = {
    "attention.to_q": (DIM, DIM),
    "attention.to_k": (DIM, DIM),
    "attention.to_v": (DIM, DIM),
    "attention.to_out.0": (DIM, DIM),
    "feed_forward.w1": (FEED_FORWARD, DIM),
    "feed_forward.w2": (DIM, FEED_FORWARD),
    "feed_forward.w3": (FEED_FORWARD, DIM),
    "adaLN_modulation.0": (4 * DIM, DIM),
}

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

WORDS = (
    "a photo of a red circle on a white table, a painting of a blue square beside the green sea, "
    "the portrait of an old man with a hat, soft morning light, sharp focus, studio, no text, watercolor, "
    "user assistant system think, 0123456789, ABCDEFGHIJKLMNOPQRSTUVWXYZ"
)


def build_tiny_pipeline(folder: Path, *, seed: int = 0, layers: int = LAYERS) -> None:
    """Write a complete diffusers folder of a tiny Z-Image pipeline (about 5 MB, float32) to `folder`.

    The transformer lies in several shards with an index. The same seed gives the same weights. Raises ImportError
    where the `train` extra is missing, OSError where the folder cannot be written.
    """
    import torch
    from diffusers.schedulers.scheduling_flow_match_euler_discrete import FlowMatchEulerDiscreteScheduler

    folder.mkdir(parents=True, exist_ok=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        _transformer(folder / "transformer", layers)
        _vae(folder / "vae")
        _text_encoder(folder / "text_encoder", vocabulary=_tokenizer(folder / "tokenizer"))
    scheduler = FlowMatchEulerDiscreteScheduler(num_train_timesteps=1000, shift=3.0, use_dynamic_shifting=False)
    scheduler.save_pretrained(str(folder / "scheduler"))
    index = {
        "_class_name": "ZImagePipeline",
        "_diffusers_version": version("diffusers"),
        "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
        "text_encoder": ["transformers", "Qwen3ForCausalLM"],
        "tokenizer": ["transformers", "Qwen2Tokenizer"],
        "transformer": ["diffusers", "ZImageTransformer2DModel"],
        "vae": ["diffusers", "AutoencoderKL"],
    }
    (folder / "model_index.json").write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def build_tiny_adapter(file: Path, *, seed: int = 0) -> None:
    """Write a training adapter that fits the tiny transformer: rank 4 over every Linear of its layers.

    Keys are those of the published Z-Image training adapters: `diffusion_model.layers.N.<linear>.lora_A.weight`
    (4 x in) and `.lora_B.weight` (out x 4), no alpha.
    """
    import torch
    from safetensors.torch import save_file

    generator = torch.Generator().manual_seed(seed)
    tensors: dict[str, Tensor] = {}
    for layer in range(LAYERS):
        for linear, (rows, columns) in LINEARS.items():
            name = f"diffusion_model.layers.{layer}.{linear}"
            tensors[f"{name}.lora_A.weight"] = torch.randn(ADAPTER_RANK, columns, generator=generator) / columns**0.5
            tensors[f"{name}.lora_B.weight"] = torch.randn(rows, ADAPTER_RANK, generator=generator) * 0.1
    file.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, str(file), metadata={"format": "pt"})


def _transformer(folder: Path, layers: int) -> None:
    import torch
    from diffusers.models.transformers.transformer_z_image import ZImageTransformer2DModel

    model = ZImageTransformer2DModel(
        dim=DIM,
        n_heads=2,
        n_kv_heads=2,
        n_layers=layers,
        n_refiner_layers=1,
        in_channels=LATENT_CHANNELS,
        cap_feat_dim=CAPTION_DIM,
        axes_dims=[16, 16, 16],
        axes_lens=[1024, 512, 512],
    )
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2 and "pad_token" not in name:
                parameter.normal_(std=parameter.shape[1] ** -0.5)
            elif name.endswith("pad_token"):
                parameter.normal_(std=0.5)
        # The head guesses at full strength and off by a constant, so a short run has something to learn.
        head: Any = model.get_submodule("all_final_layer.2-1.linear")
        head.weight.normal_(std=DIM**-0.5)
        head.bias.normal_(std=1.5)
    model.save_pretrained(str(folder), max_shard_size="1MB")


def _vae(folder: Path) -> None:
    import torch
    from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL

    make: Any = AutoencoderKL
    small = {"block_out_channels": (8, 16, 16, 16), "layers_per_block": 1, "norm_num_groups": 4, "sample_size": 512}
    model = make(**{**VAE, **small}, scaling_factor=1.0, shift_factor=0.1)
    with torch.no_grad():
        last = model.encoder.conv_out
        last.weight.mul_(3.0)
        last.bias.zero_()
        last.bias[LATENT_CHANNELS:] = -12.0  # log-variance: a trained VAE is nearly certain of its latents
        last.weight[LATENT_CHANNELS:] *= 0.01
    model.save_pretrained(str(folder))


def _text_encoder(folder: Path, *, vocabulary: int) -> None:
    from transformers import Qwen3Config
    from transformers.models.qwen3.modeling_qwen3 import Qwen3ForCausalLM

    from ..train.components.pretrained import quiet

    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=CAPTION_DIM,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        initializer_range=0.2,
    )
    with quiet():
        Qwen3ForCausalLM(config).save_pretrained(str(folder))


def _tokenizer(folder: Path) -> int:
    """Train and write a byte-level BPE tokenizer; returns the size of its vocabulary."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from tokenizers import ByteLevelBPETokenizer
    from transformers import Qwen2Tokenizer

    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(
        [WORDS] * 8, vocab_size=400, min_frequency=2, special_tokens=special, show_progress=False
    )
    model = json.loads(trained._tokenizer.to_str())["model"]
    merges = [tuple(pair) if isinstance(pair, list) else tuple(pair.split(" ")) for pair in model["merges"]]
    make: Any = Qwen2Tokenizer  # its annotations refuse the merges and the None it takes
    tokenizer = make(
        vocab=model["vocab"],
        merges=merges,
        unk_token=None,
        bos_token=None,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        extra_special_tokens=["<|im_start|>", "<|im_end|>"],
        model_max_length=1024,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(str(folder))
    return len(tokenizer)
