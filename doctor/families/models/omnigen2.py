"""OmniGen2."""

from __future__ import annotations

from ...model.record import replace
from ..record import Family, Fit, Loader
from ..record.blank import FILES_ALONE
from ..record.mined import mined_class

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
    fits=(Fit("vae", "latent_channels", ("in_channels",), 16),),
    repos={"omnigen2": "OmniGen2/OmniGen2"},
)
FAMILIES: tuple[Family, ...] = (OMNIGEN2,)
