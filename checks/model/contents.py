"""What a weight file is, told from the names of its tensors."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

_LORA = r"[._]lora_(A|B|down|up)[._]|\.lokr_w\d|^lora_"
# In this order: a description, and patterns each of which some name must match.
_KINDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("a LoRA for Z-Image", (_LORA, r"(^|[._])layers[._]\d+[._](attention|feed_forward|adaLN)")),
    ("a LoRA for Flux", (_LORA, r"single_(transformer_)?blocks[._]\d+[._](attn|proj|norm|linear|modulation)")),
    ("a LoRA", (_LORA,)),
    (
        "a whole model in one file, text encoders and VAE included",
        (r"^model\.diffusion_model\.", r"^(vae|first_stage_model|text_encoders|cond_stage_model|conditioner)\."),
    ),
    ("a Flux.2 transformer", (r"double_stream_modulation",)),
    ("a Chroma transformer", (r"distilled_guidance_layer\.",)),
    ("a Flux transformer in ComfyUI's names", (r"^model\.diffusion_model\.double_blocks\.\d+\.img_attn\.",)),
    ("a Flux transformer in the names of Black Forest Labs", (r"^double_blocks\.\d+\.img_attn\.",)),
    ("a Flux transformer in diffusers' names", (r"^transformer_blocks\.\d+\.attn\.add_k_proj\.", r"^single_transf")),
    ("a Z-Image transformer in ComfyUI's names", (r"cap_pad_token$", r"\.attention\.qkv\.")),
    ("a Z-Image transformer in diffusers' names", (r"cap_pad_token$", r"\.attention\.to_q\.")),
    ("an SDXL model", (r"^(model\.diffusion_model\.)?label_emb\.|^add_embedding\.", r"(input|down)_blocks\.\d")),
    ("a Stable Diffusion model", (r"^(model\.diffusion_model\.input_blocks|down_blocks)\.\d",)),
    ("a Stable Diffusion 3.5 model", (r"(^|\.)joint_blocks\.\d+\.x_block\.",)),
    ("a Lumina 2 transformer", (r"(^|\.)cap_embedder\.0\.", r"(^|\.)context_refiner\.\d+\.attention\.qkv\.")),
    ("an Anima transformer", (r"(^|\.)llm_adapter\.", r"(^|\.)blocks\.\d+\.adaln_modulation_")),
    ("a VAE in diffusers' names", (r"^(encoder\.down|decoder\.up)_blocks\.\d",)),
    ("a VAE in the names of its authors", (r"(^|\.)(encoder\.down|decoder\.up)\.\d+\.block\.",)),
    ("a T5 text encoder", (r"encoder\.block\.\d+\.layer\.0\.SelfAttention\.",)),
    ("a CLIP text encoder", (r"encoder\.layers\.\d+\.self_attn\.q_proj", r"embeddings\.token_embedding\.")),
    ("a Qwen text encoder", (r"layers\.\d+\.self_attn\.q_proj", r"embed_tokens\.")),
)


def contents(names: Iterable[str]) -> str:
    """What tensors of these names are, with its article; "" when that is not known here."""
    return next(iter(kinds(names)), "")


def kinds(names: Iterable[str]) -> tuple[str, ...]:
    """All that tensors of these names may be, the likeliest first: a whole model is all of its parts."""
    return _kinds("\n".join(names))


@lru_cache(maxsize=8)
def _kinds(names: str) -> tuple[str, ...]:
    """The descriptions that these names, a line each, fit: one search over all of them, not one for each."""
    return tuple(
        what for what, patterns in _KINDS if all(re.search(pattern, names, re.MULTILINE) for pattern in patterns)
    )
