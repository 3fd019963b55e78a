"""Flux.1 and what was made of it: Kontext, Flex.2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...model.record import replace
from ..components.autoencoder_kl import VAE
from ..components.clip_text import CLIP_L
from ..components.t5 import T5_XXL
from ..record import Edits, Family, Fit, Loader, Memory, Tokenizer
from ..record.block_swap import halves, halves_and_one
from ..record.of_trainers import AiToolkit, Flavour, Kohya, KohyaMemory, SimpleTuner
from .tensors import TRANSFORMER

_DEV = "black-forest-labs/FLUX.1-dev"
_SCHNELL = "black-forest-labs/FLUX.1-schnell"
_KONTEXT = "black-forest-labs/FLUX.1-Kontext-dev"
_ENCODERS = "comfyanonymous/flux_text_encoders"
_BLOCKS = ("transformer_blocks", "single_transformer_blocks")
_NAMED_BY_FILES = ("double_blocks", "single_blocks")
_COMPONENTS: Mapping[str, tuple[str, ...]] = {
    "transformer": ("FluxTransformer2DModel",),
    "text_encoder": ("CLIPTextModel", "CLIPTextModelWithProjection", "CLIPModel"),
    "text_encoder_2": ("T5EncoderModel", "T5ForConditionalGeneration", "T5Model"),
    "tokenizer": ("CLIPTokenizer",),
    "tokenizer_2": ("T5TokenizerFast",),
    "vae": ("AutoencoderKL",),
}


def _scheduler(config: Mapping[str, Any]) -> dict[str, Any]:
    """That of dev and Kontext or, without guidance, of schnell."""
    dynamic = bool(config.get("guidance_embeds"))
    return {
        "num_train_timesteps": 1000,
        "shift": 3.0 if dynamic else 1.0,
        "use_dynamic_shifting": dynamic,
        "base_shift": 0.5,
        "max_shift": 1.15,
        "base_image_seq_len": 256,
        "max_image_seq_len": 4096,
    }


# sd-scripts: library/flux_utils.py, library/strategy_flux.py (48d368fa); musubi-tuner: flux/flux_utils.py (30c658c4)
_SD_SCRIPTS = Kohya(
    script="flux_train_network",
    network_module="networks.lora_flux",
    files={
        "transformer": "pretrained_model_name_or_path",
        "text_encoder": "clip_l",
        "text_encoder_2": "t5xxl",
        "vae": "ae",
    },
    blocks=38,
    guidance=3.5,
    fused=True,
    memory=KohyaMemory("sd-scripts/Flux", _NAMED_BY_FILES, halves),
)
_MUSUBI = Kohya(
    script="flux_kontext_train_network",
    network_module="networks.lora_flux",
    files={"transformer": "dit", "text_encoder_2": "text_encoder1", "text_encoder": "text_encoder2", "vae": "vae"},
    blocks=38,
    guidance=2.5,
    cache="fk",
    samples_only=True,
    fused=True,
    memory=KohyaMemory(
        "musubi-tuner/Flux",
        _NAMED_BY_FILES,
        halves_and_one,
        left_out=r"_mod\.|modulation",
        unscaled=r"_mod\.|modulation",
        control_pixels=1024**2,
    ),
)
_SIMPLETUNER = SimpleTuner(
    family="flux",
    flavours={
        "dev": Flavour("black-forest-labs/flux.1-dev"),
        "krea": Flavour("black-forest-labs/flux.1-krea-dev"),
        "schnell": Flavour(
            "black-forest-labs/flux.1-schnell", "schnell", adapter="ostris/FLUX.1-schnell-training-adapter"
        ),
        "fluxbooru": Flavour("terminusresearch/fluxbooru-v0.3"),
        "libreflux": Flavour("jimmycarter/LibreFlux-SimpleTuner"),
    },
    default="krea",
    targets="flux",
)
_MEMORY = Memory(
    word="flux.1",
    config=lambda name: {} if "schnell" in name else {"guidance_embeds": True},
    heads=("num_attention_heads", 24),
    text=512,
    beside=True,
)

FLUX = Family(
    name="flux",
    aliases=(),
    title="Flux",
    transformer=TRANSFORMER,
    loader=Loader(
        components={**_COMPONENTS, "scheduler": ("FlowMatchEulerDiscreteScheduler",)},
        adapter_key="transformer.single_transformer_blocks.0.attn.to_k.lora_A.weight",
        vae_path=True,
    ),
    own=Loader(_COMPONENTS, single_file=_DEV, bare=True, extras=True),
    fits=(
        Fit("text_encoder", "hidden_size", ("pooled_projection_dim",), 768),
        Fit("text_encoder_2", "d_model", ("joint_attention_dim",), 4096),
        Fit("vae", "latent_channels", ("out_channels", "in_channels"), 64, factor=4),
    ),
    published={
        "text_encoder": ("CLIPTextModel", CLIP_L),
        "text_encoder_2": ("T5EncoderModel", T5_XXL),
        "vae": ("AutoencoderKL", VAE),
    },
    lora_beside={},
    lora_prefixes=("transformer.",),
    base_version="flux.1",
    lokr=False,
    blocks=_BLOCKS,
    lora_blocks=_BLOCKS,  # the modulation's Linears too, as ai-toolkit's transformer_only has it
    refiners=(),
    quantized_blocks=_BLOCKS,
    edits=None,
    guided=True,
    overflows=False,
    scheduler=_scheduler,
    distilled=None,
    memory=_MEMORY,
    packages=(),
    repos={"schnell": _SCHNELL, "kontext": _KONTEXT, "flux.1-dev": _DEV, "flux1-dev": _DEV},
    files={
        "CLIPTextModel": (("", f"{_ENCODERS} clip_l.safetensors"),),
        "T5EncoderModel": (("", f"{_ENCODERS} t5xxl_fp16.safetensors"),),
        "FluxTransformer2DModel": (
            ("kontext", f"{_KONTEXT} flux1-kontext-dev.safetensors"),
            ("schnell", f"{_SCHNELL} flux1-schnell.safetensors"),
            ("dev", f"{_DEV} flux1-dev.safetensors"),
        ),
        "AutoencoderKL": (("", f"{_DEV} ae.safetensors"),),
    },
    alike=False,
    tokenizers=(
        Tokenizer(
            "tokenizer",
            (("openai/clip-vit-large-patch14", ""), *((repo, "tokenizer") for repo in (_DEV, _SCHNELL, _KONTEXT))),
            'hf download openai/clip-vit-large-patch14 --include "*.json" --include "merges.txt"',
        ),
        Tokenizer(
            "tokenizer_2",
            (("google/t5-v1_1-xxl", ""), *((repo, "tokenizer_2") for repo in (_DEV, _SCHNELL, _KONTEXT))),
            'hf download google/t5-v1_1-xxl --include "*.json" --include "spiece.model"',
        ),
    ),
    ai_toolkit=AiToolkit(
        offloads=False,
        fused=("transformer.single_transformer_blocks.", "transformer.transformer_blocks."),
        switches={
            "model/attn_masking": "masking the padding of prompts",
            "model/use_flux_cfg": "a guidance of two passes",
            "model/vae_path": "a VAE from another place",
            "train/bypass_guidance_embedding": "bypassing the guidance embedding",
            "train/do_guidance_loss": "guidance loss for Flux",
        },
        bucket_step=32,  # it counts the packing into 2 x 2 cells twice
        trained_text=("text_encoder",),  # of T5 no class is among those that it looks for
    ),
    simpletuner=_SIMPLETUNER,
    kohya={"sd-scripts": _SD_SCRIPTS},
    runner=".flux",
    in_diffusers="",
)
# Kontext and Flex.2 bring their own scheduler, and have no place for a training adapter.
KONTEXT = replace(
    FLUX,
    name="flux_kontext",
    title="Flux Kontext",
    loader=Loader(_COMPONENTS, extras=True),
    own=Loader(_COMPONENTS, single_file=_KONTEXT, bare=True, extras=True),
    base_version="flux.1_kontext",
    edits=Edits(),
    packages=(("diffusers", (0, 35), "FluxKontextPipeline"),),
    ai_toolkit=replace(FLUX.ai_toolkit, fused=(), more_cells=True, bucket_step=16, trained_text=()),
    simpletuner=replace(
        _SIMPLETUNER, flavours={"kontext": Flavour("black-forest-labs/flux.1-kontext-dev")}, default=""
    ),
    kohya={"musubi-tuner": _MUSUBI},
)
FLEX2 = replace(
    FLUX,
    name="flex2",
    title="Flex.2",
    loader=Loader(_COMPONENTS),
    own=None,
    memory=replace(
        _MEMORY,
        word="flex.2",
        config=lambda name: {"in_channels": 196, "out_channels": 64, "guidance_embeds": True, "num_layers": 8},
    ),
    ai_toolkit=AiToolkit(),
    simpletuner=None,
    kohya={},
)
FAMILIES = (FLUX, KONTEXT, FLEX2)
