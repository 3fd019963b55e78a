"""LTX-2, films with sound, as a folder of the diffusers layout."""

from __future__ import annotations

from ...model.record import replace
from ..components.published import GEMMA3_12B
from ..record import Family, Loader, Memory
from ..record.blank import FILES_ALONE
from ..record.mined import mined_class
from ..record.of_trainers import Flavour, SimpleTuner
from . import original_names

LTX2 = replace(
    FILES_ALONE,
    name="ltx2",
    title="LTX-2",
    transformer=mined_class(
        "LTX2VideoTransformer3DModel",
        "an LTX-2 transformer",
        ("transformer_blocks.0.audio_scale_shift_table",),
        original=original_names.ltx2,
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
    published={
        "text_encoder": ("Gemma3ForConditionalGeneration", GEMMA3_12B),
        "connectors": ("LTX2TextConnectors", {}),
        "vae": ("AutoencoderKLLTX2Video", {}),
    },
    memory=Memory(
        word="",
        config=lambda name: {},
        heads=("num_attention_heads", 32),
        text=1024,
        dropped="vision_tower",
        encoder_aside=True,
        pixels=32,
        lora=("transformer_blocks",),
        frames=8,
    ),
    # simpletuner/helpers/models/ltxvideo2/model.py (bc8e6ab7); 2.3 and 2.5 are other models
    simpletuner=SimpleTuner(
        family="ltxvideo2",
        flavours={"dev": Flavour("Lightricks/LTX-2")},
        default="dev",
        taken=False,
        others=("dev-fp4", "dev-fp8", "2.3-dev", "2.3-distilled", "2.5-dev", "2.5-distilled"),
    ),
    repos={"ltx-2": "Lightricks/LTX-2"},
)
FAMILIES: tuple[Family, ...] = (LTX2,)
