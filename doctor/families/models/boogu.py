"""Boogu Image, and its model that edits pictures."""

from __future__ import annotations

from ...model.record import replace
from ..components.autoencoder_kl import VAE
from ..components.published import QWEN3_VL_8B
from ..record import Family, Loader, Memory
from ..record.blank import FILES_ALONE
from ..record.mined import mined_class

_MEMORY = Memory(
    word="",
    config=lambda name: {},
    heads=("num_attention_heads", 28),
    drawn=1,
    text=256,
    lora=("double_stream_layers", "single_stream_layers"),
)

BOOGU = replace(
    FILES_ALONE,
    name="boogu_image",
    title="Boogu Image",
    transformer=mined_class(
        "BooguImageTransformer2DModel",
        "a Boogu Image transformer",
        ("single_stream_layers.0.norm2.weight",),
    ),
    loader=Loader(
        components={
            "transformer": ("BooguImageTransformer2DModel",),
            "mllm": (),  # whatever its config.json names
            "vae": ("AutoencoderKL",),
        }
    ),
    blocks=("double_stream_layers", "single_stream_layers"),
    quantized_blocks=("double_stream_layers", "single_stream_layers"),
    published={"mllm": ("Qwen3VLForConditionalGeneration", QWEN3_VL_8B), "vae": ("AutoencoderKL", VAE)},
    memory=_MEMORY,
    repos={"0.1-base": "Boogu/Boogu-Image-0.1-Base"},
)
EDIT = replace(
    BOOGU,
    name="boogu_image_edit",
    title="Boogu Image Edit",
    repos={"0.1-edit": "Boogu/Boogu-Image-0.1-Edit"},
)
FAMILIES: tuple[Family, ...] = (BOOGU, EDIT)
