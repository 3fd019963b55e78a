"""Which programs apply which modules of an adapter, by the names that they look for. Pure.

diffusers 0.42.1 was tried with every spelling (tests/doctor/families/test_lora_programs.py); the others were read:
ComfyUI (ec93dcac) comfy/lora.py and comfy/utils.py, ai-toolkit (27a03a91) toolkit/network_mixins.py, sd-scripts
(48d368fa) networks/lora_flux.py, musubi-tuner (30c658c4) hv_train_network.py and convert_lora.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..model.lora import AdaptedModule, Lora
from ..model.record import dataclass
from . import family_with

LOADERS = ("ComfyUI", "diffusers")  # programs that pictures are made with
_ALL_WORDS = ("A", "A.default", "down", "dot")


@dataclass(frozen=True)
class _Spelling:
    """Names of modules that a program looks for: a prefix, diffusers' names ("d") or the original ones ("o"), and
    what the factors are called. `alpha` says with which alpha keys it works: with none (False), with one (True).
    """

    prefix: str
    names: str
    words: tuple[str, ...] = _ALL_WORDS
    alpha: tuple[bool, ...] = (False, True)


def _spelt(prefixes: Iterable[str], names: str) -> tuple[_Spelling, ...]:
    return tuple(_Spelling(prefix, names) for prefix in prefixes)


_KOHYA = ("down", "dot")
_COMFYUI = _spelt(("lora_unet_", "diffusion_model."), "o")
_OF_FLUX: Mapping[str, tuple[_Spelling, ...]] = {
    "ComfyUI": (*_COMFYUI, *_spelt(("transformer.", "lycoris_", "lora_transformer_", ""), "d")),
    "diffusers": (
        _Spelling("transformer.", "d", ("A", "dot")),
        _Spelling("transformer.", "d", ("down",), (False,)),
        _Spelling("lora_unet_", "o", ("down",)),
        _Spelling("diffusion_model.", "o", ("down",)),
    ),
    "ai-toolkit": (_Spelling("transformer.", "d", ("A", "down")),),
    "sd-scripts": (_Spelling("lora_unet_", "o", ("down",)),),
    "musubi-tuner": (_Spelling("lora_unet_", "o", ("down",)), _Spelling("diffusion_model.", "o", ("A", "down"))),
}
_READS: Mapping[str, Mapping[str, tuple[_Spelling, ...]]] = {
    "ZImageTransformer2DModel": {
        "ComfyUI": (*_COMFYUI, *_spelt(("diffusion_model.", "transformer.", "lycoris_", ""), "d")),
        "diffusers": (
            _Spelling("diffusion_model.", "d"),
            _Spelling("transformer.", "d", ("A", "dot"), (False,)),
            _Spelling("lora_unet_", "d", _KOHYA),
            _Spelling("lora_unet_", "o", _KOHYA),
        ),
        "ai-toolkit": tuple(_Spelling(prefix, "d", ("A", "down")) for prefix in ("diffusion_model.", "transformer.")),
        "musubi-tuner": (
            _Spelling("lora_unet_", "d", ("down",)),
            *(_Spelling(prefix, "d", ("A", "down")) for prefix in ("diffusion_model.", "transformer.")),
        ),
    },
    "FluxTransformer2DModel": _OF_FLUX,
    "ChromaTransformer2DModel": _OF_FLUX,
    # diffusers' names are the original ones
    "QwenImageTransformer2DModel": {
        "ComfyUI": _spelt(("lora_unet_", "diffusion_model.", "transformer.", "lycoris_", ""), "d"),
        "diffusers": (
            *(_Spelling(prefix, "d", ("A", "A.default", "down")) for prefix in ("diffusion_model.", "lora_unet_")),
            _Spelling("transformer.", "d", ("A", "dot"), (False,)),
            _Spelling("", "d", ("A", "down"), (True,)),
        ),
        "ai-toolkit": tuple(_Spelling(prefix, "d", ("A", "down")) for prefix in ("diffusion_model.", "transformer.")),
        "musubi-tuner": (
            _Spelling("lora_unet_", "d", ("down",)),
            *(_Spelling(prefix, "d", ("A", "down")) for prefix in ("diffusion_model.", "transformer.")),
        ),
    },
    "Flux2Transformer2DModel": {
        "ComfyUI": (*_COMFYUI, *_spelt(("transformer.", "lycoris_", "lora_transformer_", ""), "d")),
        "diffusers": (
            *(_Spelling(prefix, "d", ("A", "dot"), (False,)) for prefix in ("transformer.", "diffusion_model.")),
            *(_Spelling("base_model.model.", names, ("A",), (False,)) for names in "do"),
            _Spelling("diffusion_model.", "o", ("A",), (False,)),
            _Spelling("lora_unet_", "o", ("down",)),
        ),
        "ai-toolkit": tuple(_Spelling(prefix, "o", ("A", "down")) for prefix in ("diffusion_model.", "transformer.")),
        "musubi-tuner": (_Spelling("lora_unet_", "o", ("down",)), _Spelling("diffusion_model.", "o", ("A", "down"))),
    },
}


def programs_of(class_name: str) -> tuple[str, ...]:
    """The programs of which it is known what they apply to a transformer of this class."""
    return tuple(_READS.get(class_name, ()))


def judged_modules(lora: Lora) -> list[AdaptedModule]:
    """The modules of the transformer, but those that are no pair under any name."""
    return [one for one in lora.modules if not one.of_text_encoder and one not in lora.half_pairs]


def passed_over(lora: Lora, program: str) -> list[AdaptedModule]:
    """The modules of the transformer that the program does not apply."""
    spellings = _READS[lora.class_name][program]
    own = judged_modules(lora)
    if program == "ComfyUI" or lora.kind == "LoRA":
        return [module for module in own if not _is_read(module, spellings, lora.is_pairs)]
    if program == "diffusers" and lora.kind == "LoKr" and family_with(lora.class_name).lokr:
        return [module for module in own if module.prefix not in ("transformer.", "diffusion_model.")]
    return own


def _is_read(module: AdaptedModule, spellings: Sequence[_Spelling], pairs: bool) -> bool:
    return any(
        module.prefix == one.prefix
        and one.names in module.names
        and (not pairs or module.words in one.words)
        and ("alpha" in module.parts) in one.alpha
        for one in spellings
    )


def common_prefix(class_name: str, alpha: bool = True) -> str | None:
    """The prefix under which all programs that make pictures apply diffusers' names with lora_A, lora_B and, where it
    is asked for, alpha."""
    reads = _READS.get(class_name, {})
    for prefix in ("diffusion_model.", "transformer.") if reads else ():
        tried = AdaptedModule("", prefix, "", {"alpha": ""} if alpha else {}, names="d", words="A")
        if all(_is_read(tried, reads[program], True) for program in LOADERS):
            return prefix
    return None
