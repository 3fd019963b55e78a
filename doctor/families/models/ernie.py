"""ERNIE-Image."""

from __future__ import annotations

from ...model.record import replace
from ..record import Family, Loader
from ..record.blank import FILES_ALONE
from ..record.mined import mined_class

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
    repos={"ernie-image": "baidu/ERNIE-Image"},
)
FAMILIES: tuple[Family, ...] = (ERNIE,)
