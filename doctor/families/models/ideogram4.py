"""Ideogram 4, whose weights ai-toolkit reads in eight bits with their scales."""

from __future__ import annotations

from ...model.record import replace
from ..components.published import QWEN3_VL_8B
from ..record import Family, Loader, Memory, Origin
from ..record.blank import FILES_ALONE
from ..record.mined import mined_class
from ..record.of_trainers import IN_FILE, Flavour, SimpleTuner

_REPO = "ideogram-ai/ideogram-4-fp8"
_QWEN3_VL = Origin(repo="Qwen/Qwen3-VL-8B-Instruct", folder="")  # ai-toolkit 27a03a91, ideogram4/ideogram4.py
_LOADER = Loader(
    components={
        "transformer": ("Ideogram4",),
        "text_encoder": ("Qwen3VLForConditionalGeneration",),
        "tokenizer": (),
        "vae": ("AutoencoderKLFlux2",),
    },
    origins={
        "transformer": Origin(built=lambda tensors: ("Ideogram4", {}), scale=".weight_scale"),
        "text_encoder": _QWEN3_VL,
        "tokenizer": _QWEN3_VL,
        "vae": Origin(built=lambda tensors: ("AutoencoderKLFlux2", {})),
    },
)
# simpletuner/helpers/models/ideogram (bc8e6ab7), which takes all from one repository
_SIMPLETUNER = SimpleTuner(
    family="ideogram",
    flavours={"fp8": Flavour(_REPO, precision=IN_FILE, upcast="ideogram_fp8_base_upcast")},
    default="fp8",
    others=("nf4",),
    linears=("qkv", "o", "w1", "w2", "w3"),
    mode=True,
    taken=False,
    segments="apart",
    in_cells=True,
    quantized=("llm_cond_proj", "t_embedding", "adaln_proj", "input_proj"),
    loader=replace(
        _LOADER,
        components={**_LOADER.components, "text_encoder": ()},  # whatever its config.json names
        origins={
            **{part: _LOADER.origins[part] for part in ("transformer", "vae")},
            "text_encoder": Origin(scale=".weight_scale"),
        },
    ),
)

IDEOGRAM4 = replace(
    FILES_ALONE,
    name="ideogram4",
    title="Ideogram 4",
    transformer=mined_class("Ideogram4", "an Ideogram 4 transformer", ("layers.0.attention.o.weight",)),
    loader=_LOADER,
    base_version="ideogram4",
    blocks=("layers",),
    quantized_blocks=("layers",),
    published={
        "text_encoder": ("Qwen3VLForConditionalGeneration", QWEN3_VL_8B),
        "vae": ("AutoencoderKLFlux2", {}),
    },
    memory=Memory(word="", config=lambda name: {}, heads=("num_heads", 18), drawn=1, text=512, lora=("layers",)),
    simpletuner=_SIMPLETUNER,
    repos={"ideogram-4": _REPO},
)
FAMILIES: tuple[Family, ...] = (IDEOGRAM4,)
