"""Which settings of the model section ai-toolkit's loader of an architecture looks at (27a03a91)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...configs.words import words
from ...model import Run

_WAN = words("wan21 wan21_i2v wan22_14b wan22_14b_i2v wan22_5b")
# by one loader, and by one each: the latter are transformers that are trained by flow matching
BY_ONE_LOADER = words("sd sd1 sd15 sd2 sd3 sdxl pixart pixart_sigma auraflow flux lumina2 vega ssd")
OF_THEIR_OWN = _WAN | words(
    """
    chroma chroma_radiance cogview4 ernie_image f-lite flex2 flux2 flux2_klein_4b flux2_klein_9b flux_kontext hidream
    hidream_e1 ideogram4 krea2 nucleus_image omnigen2 prx_pixel qwen_image qwen_image_edit qwen_image_edit_plus
    zeta_chroma zimage zimage_l2p
    """
)
_READ_BY: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("in_context", "model_paths", "te_device", "vae_device"), frozenset()),
    "lora_path": BY_ONE_LOADER | _WAN | {"cogview4"},
    "quantize_kwargs": BY_ONE_LOADER | words("chroma chroma_radiance cogview4 f-lite flex2 flux_kontext"),
    "te_name_or_path": words("lumina2"),
    "text_encoder_bits": words("auraflow pixart pixart_sigma sd sd1 sd15 sd2"),
    "unconditional_lora_path": words("ideogram4"),
    "unet_path": words("auraflow pixart_sigma"),
    "vae_path": BY_ONE_LOADER | words("flux2 flux2_klein_4b flux2_klein_9b"),
}
# What of model_kwargs is read, where that is not nothing; "" stands for more than is known here.
_WITH_KWARGS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("flux2", "flux2_klein_4b", "flux2_klein_9b", "qwen_image_edit_plus"), words("match_target_res")),
    **dict.fromkeys(("hidream", "hidream_e1"), words("llama_model_path")),
    **dict.fromkeys(_WAN, words("vae_tiling")),
    **dict.fromkeys(("wan22_14b", "wan22_14b_i2v"), words("train_high_noise train_low_noise vae_tiling")),
    **dict.fromkeys(("flex2", "ideogram4", "krea2"), frozenset({""})),
    "omnigen2": words("use_image_refiner"),
}


def unread_model_keys(run: Run) -> Iterator[str]:
    """The written keys of the model section that nothing looks at, but for model_kwargs."""
    architecture = run.recipe.architecture
    for name, readers in _READ_BY.items() if architecture in BY_ONE_LOADER | OF_THEIR_OWN else ():
        if run.setting(f"model/{name}") not in (None, "", False, {}, 16) and architecture not in readers:
            yield f"model/{name}"


def unread_kwargs(run: Run) -> list[str]:
    """The names in model_kwargs that nothing looks at."""
    given, architecture = run.setting("model/model_kwargs"), run.recipe.architecture or ""
    read = _WITH_KWARGS.get(architecture, frozenset())
    known = architecture in BY_ONE_LOADER | OF_THEIR_OWN and "" not in read
    return [str(name) for name in given if name not in read] if known and isinstance(given, dict) else []
