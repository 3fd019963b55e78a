"""Krea 2: as its authors' own files have it, and the names of diffusers' class, which LoRAs may have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...model.record import replace
from ..components.published import QWEN3_VL_4B
from ..record import Family, Loader, Memory, Origin
from ..record.blank import FILES_ALONE
from ..record.block_swap import of_the_last
from ..record.mined import by_own_names, mined_class
from ..record.of_trainers import Flavour, Kohya, KohyaMemory, SimpleTuner
from . import original_names

# What ai-toolkit (27a03a91) writes into its source, krea2/krea2.py.
CONFIG: Mapping[str, Any] = {
    "features": 6144,
    "tdim": 256,
    "txtdim": 2560,
    "heads": 48,
    "kvheads": 12,
    "multiplier": 4,
    "layers": 28,
    "patch": 2,
    "channels": 16,
    "txtheads": 20,
    "txtkvheads": 20,
    "txtlayers": 12,
}
_REPOS: Mapping[str, str] = {"krea-2-raw": "krea/Krea-2-Raw", "krea-2-turbo": "krea/Krea-2-Turbo"}
_QWEN3_VL = Origin(repo="Qwen/Qwen3-VL-4B-Instruct", folder="")


def _file(repo: str) -> str:
    """raw.safetensors of krea/Krea-2-Raw (ai-toolkit 27a03a91, krea2/krea2.py)."""
    return repo.rpartition("/")[2].rpartition("-")[2].lower() + ".safetensors"


KREA2 = replace(
    FILES_ALONE,
    name="krea2",
    title="Krea 2",
    transformer=mined_class(
        "SingleStreamDiT",
        "a Krea 2 transformer",
        ("txtfusion.projector.weight",),
        by_kohya=by_own_names("SingleStreamDiT"),
    ),
    loader=Loader(
        components={
            "transformer": ("SingleStreamDiT",),
            "text_encoder": ("Qwen3VLForConditionalGeneration",),
            "tokenizer": (),
            "vae": ("AutoencoderKLQwenImage",),
        },
        origins={
            "transformer": Origin(file=_file, lone=True, built=lambda tensors: ("SingleStreamDiT", CONFIG)),
            "text_encoder": _QWEN3_VL,
            "tokenizer": _QWEN3_VL,
            "vae": Origin(repo="Qwen/Qwen-Image"),
        },
    ),
    base_version="krea2",
    published={
        "text_encoder": ("Qwen3VLForConditionalGeneration", QWEN3_VL_4B),
        "vae": ("AutoencoderKLQwenImage", {}),
    },
    memory=Memory(
        word="",
        config=lambda name: dict(CONFIG),
        heads=("heads", 48),
        drawn=1,
        text=256,
        dropped="visual",
        tile=256,
        several_controls=True,
        control_text=384**2 // 32**2,
        lora=("blocks",),
        together=256,
    ),
    blocks=("blocks",),
    quantized_blocks=("blocks",),
    kohya={
        "musubi-tuner": Kohya(
            script="krea2_train_network",
            network_module="networks.lora_krea2",
            files={"transformer": "dit", "text_encoder": "text_encoder", "vae": "vae"},
            blocks=28,
            guidance=1.0,
            cache="kr2",
            samples_only=True,
            strict=True,
            # it takes gradient_checkpointing_cpu_offload and does not do it
            memory=KohyaMemory(
                "musubi-tuner/SingleStreamDiT", ("blocks",), of_the_last, offloads=False, everywhere=True
            ),
            spare=("vae",),
        )
    },
    repos=_REPOS,
    in_diffusers="krea2 in diffusers",
)
# Those of text, too, have a LoRA in SimpleTuner, and are not computed again.
_BLOCKS = ("text_fusion.layerwise_blocks", "text_fusion.refiner_blocks", "transformer_blocks")
# simpletuner/helpers/models/krea2 (bc8e6ab7): a prompt is filled up to 512 tokens, which the transformer sees
IN_DIFFUSERS = replace(
    FILES_ALONE,
    name="krea2 in diffusers",
    title="Krea 2",
    transformer=mined_class(
        "Krea2Transformer2DModel",
        "a Krea 2 transformer",
        ("text_fusion.projector.weight",),
        original=original_names.krea2,
    ),
    loader=Loader(
        components={
            "transformer": ("Krea2Transformer2DModel",),
            "text_encoder": (),  # whatever its config.json names
            "tokenizer": (),
            "vae": ("AutoencoderKLQwenImage",),
        }
    ),
    base_version="krea2",
    published=KREA2.published,
    memory=Memory(
        word="krea-2",
        config=lambda name: {},
        heads=("num_attention_heads", 48),
        drawn=1,
        text=512,
        dropped="visual",
        lora=_BLOCKS,
    ),
    blocks=_BLOCKS,
    quantized_blocks=_BLOCKS,
    simpletuner=SimpleTuner(
        family="krea2",
        flavours={"raw": Flavour(_REPOS["krea-2-raw"]), "turbo": Flavour(_REPOS["krea-2-turbo"])},
        default="raw",
        step=0,
        taken=False,
        fuses=True,
    ),
    repos=_REPOS,
)
FAMILIES: tuple[Family, ...] = (KREA2, IN_DIFFUSERS)
