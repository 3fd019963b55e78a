"""ERNIE-Image."""

from __future__ import annotations

from ...model.record import replace
from ..record import Family, Loader, Memory
from ..record.blank import FILES_ALONE
from ..record.mined import mined_class
from ..record.of_trainers import Flavour, SimpleTuner

ERNIE = replace(
    FILES_ALONE,
    name="ernie_image",
    title="ERNIE-Image",
    transformer=mined_class(
        "ErnieImageTransformer2DModel", "an ERNIE-Image transformer", ("layers.0.adaLN_sa_ln.weight",)
    ),
    loader=Loader(
        components={
            "transformer": ("ErnieImageTransformer2DModel",),
            "text_encoder": (),  # whatever its config.json names
            "tokenizer": (),
            "vae": ("AutoencoderKLFlux2",),
        },
        extras=True,
    ),
    blocks=("layers",),
    quantized_blocks=("layers",),
    published={"vae": ("AutoencoderKLFlux2", {})},
    memory=Memory(word="", config=lambda name: {}, heads=("num_attention_heads", 24), text=256, lora=("layers",)),
    # simpletuner/helpers/models/ernie/model.py (bc8e6ab7)
    simpletuner=SimpleTuner(
        family="ernie",
        flavours={"base": Flavour("baidu/ERNIE-Image"), "turbo": Flavour("baidu/ERNIE-Image-Turbo", "turbo")},
        default="base",
        step=0,
        taken=False,
        segments="apart",
    ),
    repos={"ernie-image": "baidu/ERNIE-Image"},
)
FAMILIES: tuple[Family, ...] = (ERNIE,)
