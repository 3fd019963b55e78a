"""HiDream-I1, and E1, which edits pictures."""

from __future__ import annotations

from ...model.record import replace
from ..record import Family, Fit, Loader, Origin
from ..record.blank import FILES_ALONE
from ..record.mined import mined_class

_LLAMA = Origin(repo="unsloth/Meta-Llama-3.1-8B-Instruct", folder="")  # ai-toolkit 27a03a91, hidream/hidream_model.py

HIDREAM = replace(
    FILES_ALONE,
    name="hidream",
    title="HiDream",
    transformer=mined_class(
        "HiDreamImageTransformer2DModel", "a HiDream transformer", ("caption_projection.0.linear.weight",)
    ),
    loader=Loader(
        components={
            "transformer": ("HiDreamImageTransformer2DModel",),
            "text_encoder": ("CLIPTextModelWithProjection", "CLIPTextModel"),
            "text_encoder_2": ("CLIPTextModelWithProjection", "CLIPTextModel"),
            "text_encoder_3": ("T5EncoderModel", "T5ForConditionalGeneration", "T5Model"),
            "text_encoder_4": ("LlamaForCausalLM",),
            "tokenizer": ("CLIPTokenizer",),
            "tokenizer_2": ("CLIPTokenizer",),
            "tokenizer_3": ("T5Tokenizer",),
            "tokenizer_4": (),
            "vae": ("AutoencoderKL",),
        },
        extras=True,
        extras_first=True,
        origins={"text_encoder_4": _LLAMA, "tokenizer_4": _LLAMA},
    ),
    fits=(Fit("vae", "latent_channels", ("in_channels",), 64),),
    base_version="hidream_i1",
    blocks=("double_stream_blocks", "single_stream_blocks"),
    quantized_blocks=("double_stream_blocks", "single_stream_blocks"),
    repos={"hidream-i1-full": "HiDream-ai/HiDream-I1-Full"},
)
E1 = replace(HIDREAM, name="hidream_e1", title="HiDream-E1", repos={"e1-1": "HiDream-ai/HiDream-E1-1"})
FAMILIES: tuple[Family, ...] = (HIDREAM, E1)
