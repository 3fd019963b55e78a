"""Trainers that take each part of a model from a file of its own: which option names which part, and what is built.

sd-scripts 48d368fa (library/flux_utils.py), musubi-tuner 30c658c4 (zimage/, flux/flux_utils.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..model.recipe import PartFile
from ..model.record import dataclass, replace
from ..model.run import Run

# The text encoders of Flux and Z-Image as published.
CLIP_L: Mapping[str, Any] = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
}
T5_XXL: Mapping[str, Any] = {
    "d_model": 4096,
    "d_ff": 10240,
    "d_kv": 64,
    "num_heads": 64,
    "num_layers": 24,
    "feed_forward_proj": "gated-gelu",
}
QWEN3_4B: Mapping[str, Any] = {
    "hidden_size": 2560,
    "intermediate_size": 9728,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
}
VAE: Mapping[str, Any] = {
    "block_out_channels": (128, 256, 512, 512),
    "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4,
    "layers_per_block": 2,
    "latent_channels": 16,
    "use_quant_conv": False,
    "use_post_quant_conv": False,
}
_CHECKPOINT = (PartFile("transformer", "pretrained_model_name_or_path", "", {}, loose=True),)
_PARTS: Mapping[tuple[str, str], tuple[PartFile, ...]] = {
    ("sd-scripts", "flux"): (
        PartFile("transformer", "pretrained_model_name_or_path", "FluxTransformer2DModel", {}),
        PartFile("text_encoder", "clip_l", "CLIPTextModel", CLIP_L),
        PartFile("text_encoder_2", "t5xxl", "T5EncoderModel", T5_XXL),
        PartFile("vae", "ae", "AutoencoderKL", VAE),
    ),
    ("sd-scripts", "chroma"): (
        PartFile("transformer", "pretrained_model_name_or_path", "", {}),
        PartFile("text_encoder_2", "t5xxl", "T5EncoderModel", T5_XXL),
        PartFile("vae", "ae", "AutoencoderKL", VAE),
    ),
    ("sd-scripts", "sd1"): _CHECKPOINT,
    ("sd-scripts", "sdxl"): _CHECKPOINT,
    # the caches hold latents and text embeddings; the encoders are opened for samples only
    ("musubi-tuner", "zimage"): (
        PartFile("transformer", "dit", "ZImageTransformer2DModel", {}),
        PartFile("text_encoder", "text_encoder", "Qwen3ForCausalLM", QWEN3_4B, when="sample_prompts"),
        PartFile("vae", "vae", "AutoencoderKL", VAE, when="sample_prompts"),
    ),
    ("musubi-tuner", "flux_kontext"): (
        PartFile("transformer", "dit", "FluxTransformer2DModel", {}),
        PartFile("text_encoder_2", "text_encoder1", "T5EncoderModel", T5_XXL, when="sample_prompts"),
        PartFile("text_encoder", "text_encoder2", "CLIPTextModel", CLIP_L, when="sample_prompts"),
        PartFile("vae", "vae", "AutoencoderKL", VAE, when="sample_prompts"),
    ),
}


@dataclass(frozen=True)
class Tokenizer:
    """A tokenizer of a model in part files: its repositories, each with the folder in it, the trainers' own first.

    `command` fetches what of it is loaded; `chats` says that it must know how a chat is written.
    """

    name: str
    repos: tuple[tuple[str, str], ...]
    command: str
    chats: bool = False


_FLUX = ("black-forest-labs/FLUX.1-dev", "black-forest-labs/FLUX.1-schnell", "black-forest-labs/FLUX.1-Kontext-dev")
# sd-scripts: library/strategy_flux.py; musubi-tuner: flux/flux_utils.py, zimage/zimage_utils.py
_OF_CLIP = Tokenizer(
    "tokenizer",
    (("openai/clip-vit-large-patch14", ""), *((repo, "tokenizer") for repo in _FLUX)),
    'hf download openai/clip-vit-large-patch14 --include "*.json" --include "merges.txt"',
)
_OF_T5 = Tokenizer(
    "tokenizer_2",
    (("google/t5-v1_1-xxl", ""), *((repo, "tokenizer_2") for repo in _FLUX)),
    'hf download google/t5-v1_1-xxl --include "*.json" --include "spiece.model"',
)
_OF_QWEN = Tokenizer(
    "tokenizer",
    (("Tongyi-MAI/Z-Image", "tokenizer"), ("Tongyi-MAI/Z-Image-Turbo", "tokenizer")),
    'hf download Tongyi-MAI/Z-Image --include "tokenizer/*"',
    chats=True,
)
_TOKENIZERS: Mapping[str, tuple[Tokenizer, ...]] = {
    "flux": (_OF_CLIP, _OF_T5),
    "flux_kontext": (_OF_CLIP, _OF_T5),
    "zimage": (_OF_QWEN,),
}


def part_files(run: Run) -> tuple[PartFile, ...]:
    """The parts of this run's model, transformer first; empty for a trainer or model that is not known here."""
    return run.recipe.parts or _PARTS.get((run.trainer, run.recipe.architecture or ""), ())


def tokenizers(run: Run) -> tuple[Tokenizer, ...]:
    """What zdoctor's own runner needs beside the files of the parts."""
    return _TOKENIZERS.get(run.recipe.architecture or "", ()) if run.recipe.parts else ()


def with_parts(made: Run, run: Run) -> Run:
    """`made`, which is `run` in the words of zdoctor's own runner, with the files of its parts: it opens them all."""
    parts = tuple(replace(part, when="", loose=False) for part in part_files(run))
    named = {part.option: run.settings[part.option] for part in parts if part.option in run.settings}
    return replace(made, settings={**made.settings, **named}, recipe=replace(made.recipe, parts=parts))


def written_path(run: Run, part: PartFile) -> str | None:
    """The path that the run gives for a part."""
    value = run.setting(part.option)
    return value if isinstance(value, str) and value else None


def other_files(run: Run) -> tuple[tuple[str, str], ...]:
    """(option, path) of what kohya's trainers open beside the model: prompts, weights, a saved state."""
    if run.trainer not in ("sd-scripts", "musubi-tuner") or run.config.lower().endswith(".json"):
        return ()  # the GUI keeps the prompts themselves there
    found: list[tuple[str, str]] = []
    options = ("sample_prompts", "network_weights", "base_weights", "resume")
    for option in options if run.homes else ("dataset_config", *options):
        written = run.setting(option)
        entries = written if isinstance(written, list) else [written]
        found += [(option, entry) for entry in entries if isinstance(entry, str) and entry and "\0" not in entry]
    from_hub = run.settings.get("resume_from_huggingface")
    return tuple(pair for pair in found if pair[0] != "resume" or from_hub is None)
