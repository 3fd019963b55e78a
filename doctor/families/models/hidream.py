"""HiDream-I1, and E1, which edits pictures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...model.record import replace
from ..components.autoencoder_kl import VAE
from ..components.clip_text import CLIP_L
from ..components.published import CLIP_G, LLAMA3_8B
from ..components.t5 import T5_XXL
from ..record import Family, Fit, Loader, Memory, Origin
from ..record.blank import FILES_ALONE
from ..record.mined import mined_class
from ..record.of_trainers import Flavour, SimpleTuner

_LLAMA = Origin(repo="unsloth/Meta-Llama-3.1-8B-Instruct", folder="")  # ai-toolkit 27a03a91, hidream/hidream_model.py

CONFIG: Mapping[str, Any] = {
    "patch_size": 2,
    "in_channels": 16,
    "caption_channels": [4096, 4096],
    "llama_layers": [*range(32), *[31] * 16],
    "max_resolution": [128, 128],
    "axes_dims_rope": [64, 32, 32],
}
# T5 and Llama are read to 128 tokens each.
_MEMORY = Memory(
    word="",
    config=lambda name: dict(CONFIG),
    heads=("num_attention_heads", 20),
    text=256,
    lora=("double_stream_blocks", "single_stream_blocks"),
    loads_whole=True,
)

_COMPONENTS: Mapping[str, tuple[str, ...]] = {
    "transformer": ("HiDreamImageTransformer2DModel",),
    "text_encoder": ("CLIPTextModelWithProjection", "CLIPTextModel"),
    "text_encoder_2": ("CLIPTextModelWithProjection", "CLIPTextModel"),
    "text_encoder_3": ("T5EncoderModel", "T5ForConditionalGeneration", "T5Model"),
    "text_encoder_4": ("LlamaForCausalLM",),
    "tokenizer": ("CLIPTokenizer",),
    "tokenizer_2": ("CLIPTokenizer",),
    "tokenizer_3": ("T5Tokenizer",),
    "tokenizer_4": (),
    "vae": ("AutoencoderKL",),
}
# simpletuner/helpers/models/hidream/model.py (bc8e6ab7)
_LLAMA_OF_SIMPLETUNER = Origin(repo="terminusresearch/HiDream-I1-Llama-3.1-8B-Instruct")
_SIMPLETUNER = SimpleTuner(
    family="hidream",
    flavours={name: Flavour(f"HiDream-ai/HiDream-I1-{name.title()}") for name in ("full", "dev", "fast")},
    default="full",
    taken=False,
    segments="apart",
    loader=Loader(
        _COMPONENTS, origins={"text_encoder_4": _LLAMA_OF_SIMPLETUNER, "tokenizer_4": _LLAMA_OF_SIMPLETUNER}
    ),
)

HIDREAM = replace(
    FILES_ALONE,
    name="hidream",
    title="HiDream",
    transformer=mined_class(
        "HiDreamImageTransformer2DModel", "a HiDream transformer", ("caption_projection.0.linear.weight",)
    ),
    loader=Loader(
        components=_COMPONENTS,
        extras=True,
        extras_first=True,
        origins={"text_encoder_4": _LLAMA, "tokenizer_4": _LLAMA},
    ),
    fits=(Fit("vae", "latent_channels", ("in_channels",), 64),),
    base_version="hidream_i1",
    published={
        "text_encoder": ("CLIPTextModelWithProjection", CLIP_L),
        "text_encoder_2": ("CLIPTextModelWithProjection", CLIP_G),
        "text_encoder_3": ("T5EncoderModel", T5_XXL),
        "text_encoder_4": ("LlamaForCausalLM", LLAMA3_8B),
        "vae": ("AutoencoderKL", VAE),
    },
    blocks=("double_stream_blocks", "single_stream_blocks"),
    quantized_blocks=("double_stream_blocks", "single_stream_blocks"),
    memory=_MEMORY,
    simpletuner=_SIMPLETUNER,
    repos={"hidream-i1-full": "HiDream-ai/HiDream-I1-Full"},
)
E1 = replace(
    HIDREAM,
    name="hidream_e1",
    title="HiDream-E1",
    simpletuner=None,
    memory=replace(_MEMORY, several_controls=True),  # beside the picture, in one sequence
    repos={"e1-1": "HiDream-ai/HiDream-E1-1"},
)
FAMILIES: tuple[Family, ...] = (HIDREAM, E1)
