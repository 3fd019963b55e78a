"""Boogu Image, and its model that edits pictures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...model.record import replace
from ..components.autoencoder_kl import VAE
from ..components.published import QWEN3_VL_8B
from ..record import Family, Loader, Memory
from ..record.blank import FILES_ALONE
from ..record.mined import mined_class
from ..record.of_trainers import Flavour, SimpleTuner

# Its config.json, which ai-toolkit's class has for its defaults, and SimpleTuner's has not.
CONFIG: Mapping[str, Any] = {
    "hidden_size": 3360,
    "num_layers": 40,
    "num_double_stream_layers": 8,
    "num_attention_heads": 28,
    "num_kv_heads": 7,
    "instruction_feature_configs": {
        "instruction_feat_dim": 4096,
        "reduce_type": "mean",
        "num_instruction_feat_layers": 1,
    },
    "timestep_scale": 1000.0,
}
# Linears that torchao leaves as they are in SimpleTuner (helpers/training/quantisation, bc8e6ab7): those of pictures
# to edit, and those of 840 rows, no multiple of 16.
SPARED = r"^ref_image_|to_[kv]$"
_MEMORY = Memory(
    word="",
    config=lambda name: {},
    heads=("num_attention_heads", 28),
    drawn=1,
    text=256,
    template=24,
    lora=("double_stream_layers", "single_stream_layers"),
)

# simpletuner/helpers/models/boogu_image/model.py (bc8e6ab7). Refiners have a LoRA, too, and are not computed again.
_SIMPLETUNER = SimpleTuner(
    family="boogu_image",
    flavours={},
    default="",
    taken=False,
    segments="apart",
    lists=("context_refiner", "noise_refiner", "ref_image_refiner", "double_stream_layers", "single_stream_layers"),
    spared=SPARED,
)


def _flavours(name: str) -> dict[str, Flavour]:
    repo = f"SimpleTuner/Boogu-Image-0.1-{name.title()}"
    return {f"v0.1-{name}": Flavour(repo), f"v0.1-{name}-fp8": Flavour(repo, precision="fp8-torchao")}


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
    simpletuner=replace(_SIMPLETUNER, flavours=_flavours("base") | _flavours("turbo"), default="v0.1-turbo"),
    repos={"0.1-base": "Boogu/Boogu-Image-0.1-Base"},
)
EDIT = replace(
    BOOGU,
    name="boogu_image_edit",
    title="Boogu Image Edit",
    simpletuner=replace(_SIMPLETUNER, flavours=_flavours("edit")),
    repos={"0.1-edit": "Boogu/Boogu-Image-0.1-Edit"},
)
FAMILIES: tuple[Family, ...] = (BOOGU, EDIT)
