"""LTX-2, films with sound, as a folder of the diffusers layout."""

from __future__ import annotations

from ...model.record import replace
from ..record import Family, Loader
from ..record.blank import FILES_ALONE
from ..record.mined import mined_class

LTX2 = replace(
    FILES_ALONE,
    name="ltx2",
    title="LTX-2",
    transformer=mined_class(
        "LTX2VideoTransformer3DModel", "an LTX-2 transformer", ("transformer_blocks.0.audio_scale_shift_table",)
    ),
    loader=Loader(
        components={
            "transformer": ("LTX2VideoTransformer3DModel",),
            "text_encoder": ("Gemma3ForConditionalGeneration",),
            "tokenizer": (),
            "connectors": ("LTX2TextConnectors",),
            "vae": ("AutoencoderKLLTX2Video",),
            "audio_vae": ("AutoencoderKLLTX2Audio",),
            "vocoder": ("LTX2Vocoder",),
        },
        single_file="",
        extras=True,
    ),
    base_version="ltx2",
    blocks=("transformer_blocks",),
    quantized_blocks=("transformer_blocks",),
    repos={"ltx-2": "Lightricks/LTX-2"},
)
FAMILIES: tuple[Family, ...] = (LTX2,)
