"""Nucleus-Image, a mixture of experts."""

from __future__ import annotations

from ...model.record import replace
from ..record import Family, Loader
from ..record.blank import FILES_ALONE
from ..record.mined import mined_class

NUCLEUS = replace(
    FILES_ALONE,
    name="nucleus_image",
    title="Nucleus-Image",
    transformer=mined_class(
        "NucleusMoEImageTransformer2DModel",
        "a Nucleus-Image transformer",
        ("transformer_blocks.3.img_mlp.experts.gate_up_proj",),
    ),
    loader=Loader(
        components={
            "transformer": ("NucleusMoEImageTransformer2DModel",),
            "text_encoder": ("Qwen3VLForConditionalGeneration",),
            "vae": ("AutoencoderKLQwenImage",),
        },
        extras=True,
    ),
    blocks=("transformer_blocks",),
    quantized_blocks=("transformer_blocks",),
    repos={"nucleus-image": "NucleusAI/Nucleus-Image"},
)
FAMILIES: tuple[Family, ...] = (NUCLEUS,)
