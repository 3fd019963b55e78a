"""PRXPixel, which works on pixels and has no VAE."""

from __future__ import annotations

from ...model.record import replace
from ..record import Family, Loader
from ..record.blank import FILES_ALONE
from ..record.mined import mined_class

PRX_PIXEL = replace(
    FILES_ALONE,
    name="prx_pixel",
    title="PRXPixel",
    transformer=mined_class("PRXTransformer2DModel", "a PRX transformer", ("blocks.0.img_qkv_proj.weight",)),
    loader=Loader(
        components={
            "transformer": ("PRXTransformer2DModel",),
            "text_encoder": ("Qwen3VLTextModel",),
            "tokenizer": (),
        }
    ),
    repos={"prxpixel": "Photoroom/prxpixel-t2i"},
)
FAMILIES: tuple[Family, ...] = (PRX_PIXEL,)
