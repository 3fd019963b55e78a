"""Which programs apply which modules of an adapter, by the names that they look for. Pure.

diffusers 0.42.1 was tried with every spelling (tests/doctor/families/test_lora_programs.py), ComfyUI 0.19.3 by the
map that its own models make (benchmarks/lora_names.py) and by what comfy/lora.py and comfy/utils.py added since
(17358c8f); the others were read: ai-toolkit (27a03a91) toolkit/network_mixins.py, sd-scripts (48d368fa)
networks/lora_flux.py and lora.py, musubi-tuner (30c658c4) hv_train_network.py and convert_lora.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from ..model.lora import AdaptedModule, Lora
from ..model.record import dataclass, replace
from .lora_parts import MAGNITUDES, kind_of
from .record import Family

LOADERS = ("ComfyUI", "diffusers")  # programs that pictures are made with
_ALL_WORDS = ("A", "A.default", "down", "dot", "_lora", "linear", "bare")


@dataclass(frozen=True)
class _Spelling:
    """Names of modules that a program looks for: a prefix, whose `names` (AdaptedModule), "t" for those of CLIP, and
    what the factors are called. `alpha` says with which alpha keys it works: with none (False), with one (True).
    `whole` are patterns of diffusers' names, of each of which a block must have a module, and a module beside them
    must be of `beside`: else the file is refused. Names of diffusers' that begin as `lacks` says have none here.
    """

    prefix: str
    names: str
    words: tuple[str, ...] = _ALL_WORDS
    alpha: tuple[bool, ...] = (False, True)
    whole: tuple[str, ...] = ()
    beside: str = ""
    lacks: str = ""


def _spelt(
    prefixes: Iterable[str], names: str, words: tuple[str, ...] = _ALL_WORDS, alpha: tuple[bool, ...] = (False, True)
) -> tuple[_Spelling, ...]:
    return tuple(_Spelling(prefix, names, words, alpha) for prefix in prefixes)


_KOHYA = ("down", "dot")
_COMFYUI = _spelt(("lora_unet_", "diffusion_model."), "o")
_DOT: tuple[tuple[str, ...], tuple[bool, ...]] = (("A", "dot"), (False,))
_PEFT = _spelt(("transformer.",), "d", *_DOT)
_MUSUBI = (
    _Spelling("lora_unet_", "o", ("down",)),
    *_spelt(("diffusion_model.", "transformer."), "o", ("A", "down")),
)
_OF_WAN = tuple(
    rf"blocks\.\d+\.{module}"
    for module in (
        *(rf"attn{number}\.to_{part}" for number in "12" for part in ("q", "k", "v", r"out\.0")),
        *(r"ffn\.net\.0\.proj", r"ffn\.net\.2"),
    )
)
_OF_LUMINA = (
    *(rf".+\.{module}" for module in ("attn.to_q", "attn.to_out.0", *(f"feed_forward.linear_{n}" for n in "123"))),
    r"context_refiner\..+\.attn\.to_q|.+\.norm1\.linear",
)
_COMFY_UNET = (
    *_spelt(("lora_unet_", "lycoris_"), "d"),
    *_COMFYUI,
    *(one for names in "pn" for one in _spelt(("unet.", ""), names)),
    *_spelt(("lora_te_", "lora_te1_", "text_encoder."), "t"),
)
_DIFFUSERS_UNET = (
    *_spelt(("unet.",), "d", *_DOT),
    _Spelling("unet.", "p", ("_lora",), (False,)),
    *_spelt(("lora_unet_",), "d", ("down",)),
    *_spelt(("lora_te_", "lora_te1_"), "t", ("down",)),
    _Spelling("text_encoder.", "t", ("A",), (False,)),
)
_OWN_OF_FLUX = tuple(
    _Spelling(prefix, "d", lacks="distilled_guidance_layer|time_guidance_embed|(double|single)_stream_modulation")
    for prefix in ("transformer.", "lycoris_", "lora_transformer_", "")
)
_OF_FLUX: Mapping[str, tuple[_Spelling, ...]] = {
    "ComfyUI": (*_COMFYUI, *_OWN_OF_FLUX),
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
        "ComfyUI": (*_COMFYUI, *_OWN_OF_FLUX),
        "diffusers": (
            *(_Spelling(prefix, "d", ("A", "dot"), (False,)) for prefix in ("transformer.", "diffusion_model.")),
            *(_Spelling("base_model.model.", names, ("A",), (False,)) for names in "do"),
            _Spelling("diffusion_model.", "o", ("A",), (False,)),
            _Spelling("lora_unet_", "o", ("down",)),
        ),
        "ai-toolkit": tuple(_Spelling(prefix, "o", ("A", "down")) for prefix in ("diffusion_model.", "transformer.")),
        "musubi-tuner": (_Spelling("lora_unet_", "o", ("down",)), _Spelling("diffusion_model.", "o", ("A", "down"))),
    },
    "WanTransformer3DModel": {
        "ComfyUI": (*_COMFYUI, _Spelling("lora_unet__", "o", _KOHYA)),
        "diffusers": (
            *_PEFT,
            _Spelling("diffusion_model.", "o", ("A", "down"), (False,)),
            _Spelling("lora_unet_", "o", ("down",), (True,), _OF_WAN, r".+\.attn2\.add_[kv]_proj"),
        ),
        "musubi-tuner": _MUSUBI,
    },
    "Lumina2Transformer2DModel": {
        "ComfyUI": _COMFYUI,
        "diffusers": (*_PEFT, _Spelling("diffusion_model.", "o", ("A",), (False,), _OF_LUMINA, r".+\.to_[qkv]")),
    },
    "LTX2VideoTransformer3DModel": {
        "ComfyUI": (*_COMFYUI, _Spelling("", "o")),
        "diffusers": (*_PEFT, *_spelt(("diffusion_model.",), "d", *_DOT), *_spelt(("diffusion_model.",), "o", *_DOT)),
    },
    "HiDreamImageTransformer2DModel": {
        "ComfyUI": (*_COMFYUI, *_spelt(("transformer.", "lycoris_"), "d")),
        "diffusers": (*_PEFT, *_spelt(("diffusion_model.",), "d", *_DOT)),
    },
    "Krea2Transformer2DModel": {
        "ComfyUI": (*_COMFYUI, *_spelt(("diffusion_model.", "transformer.", "lycoris_", ""), "d")),
        "diffusers": (*_PEFT, *_spelt(("diffusion_model.", "base_model.model."), "o", ("A",), (False,))),
    },
    "CosmosTransformer3DModel": {
        "ComfyUI": _COMFYUI,
        "diffusers": (*_PEFT, *_spelt(("diffusion_model.",), "o", *_DOT)),
    },
    "ErnieImageTransformer2DModel": {
        "ComfyUI": (*_COMFYUI, _Spelling("transformer.", "d")),
        "diffusers": (*_PEFT, *_spelt(("diffusion_model.", "base_model.model."), "d", *_DOT)),
    },
    "sdxl": {
        "ComfyUI": (*_COMFY_UNET, *_spelt(("lora_te2_", "text_encoder_2."), "t")),
        "diffusers": (
            *_DIFFUSERS_UNET,
            _Spelling("lora_unet_", "o", ("down",)),
            _Spelling("lora_te2_", "t", ("down",)),
            _Spelling("text_encoder_2.", "t", ("A",), (False,)),
        ),
        "sd-scripts": tuple(
            _Spelling(*one, ("down",))
            for one in (("lora_unet_", "o"), ("lora_unet_", "d"), ("lora_te1_", "t"), ("lora_te2_", "t"))
        ),
    },
    "sd15": {
        "ComfyUI": _COMFY_UNET,
        "diffusers": _DIFFUSERS_UNET,
        "sd-scripts": (_Spelling("lora_unet_", "d", ("down",)), _Spelling("lora_te_", "t", ("down",))),
    },
}


# Of DoRA diffusers takes what peft calls it, where names are passed on to peft as they are; of LoKr these names.
_AS_PEFT = ("A", "dot")
_LOKR = {
    "ZImageTransformer2DModel": (_Spelling("transformer.", "d", (), (False,)), _Spelling("diffusion_model.", "d")),
    "Flux2Transformer2DModel": (
        _Spelling("transformer.", "d", (), (False,)),
        *(_Spelling(prefix, "o") for prefix in ("diffusion_model.", "base_model.model.")),
        _Spelling("lycoris_", "d"),
    ),
}
_OF_COMFYUI = {"LoRA", "DoRA", "LoKr", "LoHa", "OFT", "GLoRA", "full difference"}


def programs_of(lora: Lora) -> tuple[str, ...]:
    """The programs of which it is known what they apply to the model of this adapter."""
    return tuple(_reads(lora))


def _reads(lora: Lora) -> Mapping[str, tuple[_Spelling, ...]]:
    return _READS.get(lora.class_name) or _READS.get(next(iter(lora.families), "")) or {}


def is_known(family: Family) -> bool:
    """Whether it is known which programs apply LoRAs of a family."""
    return family.class_name in _READS or family.name in _READS


def judged_modules(lora: Lora) -> list[AdaptedModule]:
    """The modules of the transformer and of CLIP, but those that are no pair under any name."""
    texts = any(one.names == "t" for one in _reads(lora).get("ComfyUI", ()))
    return [
        one
        for one in lora.modules
        if one not in lora.half_pairs and (not one.of_text_encoder or (texts and one.names == "t"))
    ]


def passed_over(lora: Lora, program: str) -> list[AdaptedModule]:
    """The modules that the program does not apply."""
    own, spellings = judged_modules(lora), _reads(lora)[program]
    if program not in LOADERS and lora.kind != "LoRA":
        return own
    missed = [module for module in own if not _is_read(lora, module, spellings, program)]
    for one in spellings:
        if one.whole and not _is_whole(lora, one):
            missed += [module for module in own if module not in missed and _fits(module, one, True)]
    return missed


def alpha_is_why(lora: Lora, program: str, missed: Sequence[AdaptedModule]) -> bool:
    """Whether the program would apply these modules if they had no alpha keys."""
    plain = [
        replace(one, parts={part: name for part, name in one.parts.items() if part != "alpha"}) for one in missed
    ]
    return all("alpha" in one.parts for one in missed) and all(
        any(_fits(one, spelling, True) and not spelling.whole for spelling in _reads(lora)[program]) for one in plain
    )


def without_magnitude(lora: Lora, program: str) -> list[AdaptedModule]:
    """The modules of a DoRA of which the program applies the pair and leaves the magnitude."""
    read = "dora_scale" if program == "ComfyUI" else "lora_magnitude_vector"
    if lora.kind != "DoRA" or program not in LOADERS:
        return []
    missed = passed_over(lora, program)
    odd = set(MAGNITUDES) - {read}
    return [one for one in judged_modules(lora) if one not in missed and not odd.isdisjoint(one.parts)]


def _is_read(lora: Lora, module: AdaptedModule, spellings: Sequence[_Spelling], program: str) -> bool:
    kind = kind_of(module.parts)
    pairs = kind in ("LoRA", "DoRA")
    if program == "ComfyUI" and kind not in _OF_COMFYUI:
        return False
    if program == "diffusers" and not pairs:
        spellings = _LOKR.get(lora.class_name, ()) if kind == "LoKr" else ()
    as_peft = program == "diffusers" and "lora_magnitude_vector" in module.parts
    return any(_fits(module, one, pairs) and (not as_peft or one.words == _AS_PEFT) for one in spellings)


def _fits(module: AdaptedModule, one: _Spelling, pairs: bool) -> bool:
    return (
        module.prefix == one.prefix
        and one.names in module.names
        and (not pairs or module.words in one.words)
        and ("alpha" in module.parts) in one.alpha
        and not (one.lacks and any(re.match(one.lacks, name) for name in module.linears))
    )


def _is_whole(lora: Lora, one: _Spelling) -> bool:
    """Whether each block has all the modules that a spelling asks for, and none of others; half pairs count, too."""
    blocks: dict[str, list[str]] = {}
    for name in (name for module in lora.modules for name in module.linears[:1]):
        found = re.match(r"(?:.+?\.)?\d+\.", name)
        blocks.setdefault(found[0] if found else "", []).append(name)
    known = "|".join(filter(None, (*one.whole, one.beside)))
    return all(
        all(any(re.fullmatch(pattern, name) for name in names) for pattern in one.whole)
        and all(re.fullmatch(known, name) for name in names)
        for names in blocks.values()
    )


@dataclass(frozen=True)
class Common:
    """The names under which all programs that make pictures apply a LoRA: as in `_Spelling`."""

    prefix: str
    names: str
    words: str


def common_names(lora: Lora, alpha: bool) -> Common | None:
    """The first that there are, with or without alpha keys; None where there are none."""
    reads = _reads(lora)
    for prefix, names, words in _CANDIDATES if reads else ():
        parts = {"A": "", "B": "", **({"alpha": ""} if alpha else {})}
        tried = AdaptedModule("", prefix, "", parts, names=names, words=words)
        fitting = ((one for one in reads[program] if _fits(tried, one, True)) for program in LOADERS)
        if all(any(not one.whole or _is_whole(lora, one) for one in of) for of in fitting):
            return Common(prefix, names, words)
    return None


_CANDIDATES = (
    *(("diffusion_model.", "d", "A"), ("transformer.", "d", "A"), ("diffusion_model.", "o", "A")),
    *(("lora_unet_", "o", "down"), ("lora_unet_", "d", "down")),
)
