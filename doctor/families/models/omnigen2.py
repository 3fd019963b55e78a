"""OmniGen2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...model.record import replace
from ..components.autoencoder_kl import VAE
from ..components.published import QWEN25_VL_3B
from ..record import Family, Fit, Loader, Memory
from ..record.blank import FILES_ALONE
from ..record.mined import mined_class

# What its config.json has of its own.
CONFIG: Mapping[str, Any] = {
    "hidden_size": 2520,
    "num_layers": 32,
    "num_attention_heads": 21,
    "num_kv_heads": 7,
    "axes_dim_rope": [40, 40, 40],
    "text_feat_dim": 2048,
}
OMNIGEN2 = replace(
    FILES_ALONE,
    name="omnigen2",
    title="OmniGen2",
    transformer=mined_class(
        "OmniGen2Transformer2DModel", "an OmniGen2 transformer", ("ref_image_refiner.0.norm2.weight",)
    ),
    loader=Loader(
        components={
            "transformer": ("OmniGen2Transformer2DModel",),
            "mllm": ("Qwen2_5_VLForConditionalGeneration",),
            "vae": ("AutoencoderKL",),
        },
        extras=True,
        extras_first=True,
    ),
    base_version="omnigen2",
    fits=(Fit("vae", "latent_channels", ("in_channels",), 16),),
    blocks=("context_refiner", "noise_refiner", "layers"),
    quantized_blocks=("context_refiner", "noise_refiner", "ref_image_refiner", "layers"),
    published={"mllm": ("Qwen2_5_VLForConditionalGeneration", QWEN25_VL_3B), "vae": ("AutoencoderKL", VAE)},
    memory=Memory(
        word="",
        config=lambda name: dict(CONFIG),
        heads=("num_attention_heads", 21),
        drawn=1,
        text=256,
        lora=("context_refiner", "noise_refiner", "layers"),
        loads_whole=True,
    ),
    repos={"omnigen2": "OmniGen2/OmniGen2"},
)
FAMILIES: tuple[Family, ...] = (OMNIGEN2,)
