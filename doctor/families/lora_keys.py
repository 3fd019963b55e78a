"""What the names in an adapter file say: which module of which model each tensor is for. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from math import prod

from ..model import WeightFile
from ..model.lora import AdaptedModule, Lora
from ..model.pattern import pattern
from ..model.record import replace
from ..model.said import joined
from . import classes, families, family_of
from .lora_parts import kind_of, split, words_of
from .lora_programs import is_known
from .models.unet_names import processor_name
from .part_files import class_in, title_of
from .record import Family
from .record.mined import mined_class_of, mined_classes, mined_tensors
from .record.single_file import original_parts

Index = Mapping[str, tuple[str, tuple[str, ...]]]

# What programs put before the name of a module; those that end with _ write the dots of the name as _, too.
PREFIXES = (
    *(
        "transformer.base_model.model.",
        "base_model.model.",
        "model.diffusion_model.",
        "diffusion_model.",
        "transformer.",
        "unet.",
    ),
    *("text_encoders.", "text_encoder_2.", "text_encoder_3.", "text_encoder."),
    *("lora_unet__", "lora_unet_", "lora_transformer_", "lora_prior_unet_", "lycoris_"),
    *("lora_te1_", "lora_te2_", "lora_te3_", "lora_te_"),
)
# Modules that only one family has, of those without a record here (names with _ for dots).
_FOREIGN = {
    "Qwen-Image": r"transformer_blocks_\d+_(img_mlp|txt_mlp|img_mod|txt_mod)_",
    "FLUX.2": r"double_stream_modulation|single_stream_modulation|attn_to_qkv_mlp_proj|_ff_linear_(in|out)",
    "Chroma": r"distilled_guidance_layer",
    "Wan": r"(^|_)blocks_\d+_(self_attn|cross_attn)_[qkvo]($|_)|condition_embedder",
    "HiDream": r"(double|single)_stream_blocks_\d+_",
    "Krea 2": r"text_fusion|txtfusion",
    "Stable Diffusion 3": r"joint_blocks_\d+_",
    "LTX-Video": r"transformer_blocks_\d+_(audio_)?attn[12]_.*|patchify_proj",
    "Stable Diffusion or SDXL": r"(^|_)(down_blocks|up_blocks|mid_block|input_blocks|output_blocks|middle_block)_",
}
_OF_CLIP = pattern(r"(?:text\.model\.)?encoder\.layers\.\d+\.(?:mlp\.fc[12]|self\.attn\.(?:[qkv]|out)\.proj)")
_NUMBERS, _IN_LISTS = pattern(r"\d+"), pattern(r"\*|\[[^]]*\]")
_SAMPLE = 12  # modules that are looked at first
_EMBEDDINGS = ("emb_params", "string_to_param", "string_to_token", "clip_l", "clip_g", "t5xxl", "qwen")


def read_lora(path: str, file: WeightFile, base_class: str = "") -> Lora:
    """What the adapter file that was named as `path` holds, by its header; `base_class` is its base model's."""
    parts: dict[str, dict[str, str]] = {}
    others: list[str] = []
    for name in file.tensors:
        found = split(name)
        if found is None:
            others.append(name)
        else:
            parts.setdefault(found[0], {})[found[1]] = name
    kind = kind_of({part for module in parts.values() for part in module})
    if not kind:
        return Lora(path, file, holds=_holds(file.tensors), others=tuple(file.tensors))
    modules = [_module(key, of) for key, of in parts.items()]
    found_families = _families_of(modules, file, base_class)
    if found_families:
        index = index_of(found_families[0].name)
        modules = [_in_clip(module) if module.of_text_encoder else placed(module, index) for module in modules]
    return Lora(
        path,
        file,
        kind,
        modules=tuple(modules),
        others=tuple(others),
        class_name=found_families[0].class_name if found_families else "",
        families=tuple(family.name for family in found_families),
        title=_titles([family.title for family in found_families]),
        foreign="" if found_families else _foreign(modules),
    )


def _titles(titles: Iterable[str]) -> str:
    """What the families are called, a kind of another family of them not by itself ("Wan 2.1 from pictures")."""
    unlike = dict.fromkeys(titles)
    return joined(" or ", (one for one in unlike if not any(one.startswith(f"{other} ") for other in unlike)))


def _holds(names: Iterable[str]) -> str:
    """What a file is that is no adapter, as far as its names say."""
    whole = class_in(list(names))
    if whole is not None:
        return f"the weights of {title_of(whole)}"
    firsts = {name.partition(".")[0] for name in names}
    if firsts and firsts <= set(_EMBEDDINGS):
        return "a textual inversion embedding"
    flat = [name.replace(".", "_") for name in names]
    for family, words in _FOREIGN.items():
        if any(re.search(words, name) for name in flat):
            return f"the weights of a model ({family}, by its names)"
    return ""


def _module(key: str, parts: Mapping[str, str]) -> AdaptedModule:
    prefix = next((prefix for prefix in PREFIXES if key.startswith(prefix)), "")
    factor = (parts.get("A") or parts.get("B") or "").removeprefix(key)
    return AdaptedModule(key, prefix, key.removeprefix(prefix), parts, words=words_of(factor))


def _families_of(modules: Iterable[AdaptedModule], file: WeightFile, base_class: str) -> tuple[Family, ...]:
    """The families whose models have nearly all of these modules, and most of their sizes; the likeliest first.

    Several are alike: Wan 2.1 and 2.2; or Flux and Chroma, where the modulation, which Chroma lacks, has no LoRA.
    Then the first is the one that the metadata name, the base model's, or the first of which it is known what loads
    it, and the others are those of its class.
    """
    of_model = [module for module in modules if not module.of_text_encoder and set(module.parts) != {"alpha"}]
    ranks: dict[str, tuple[int, int]] = {}
    some = of_model[:: len(of_model) // _SAMPLE + 1]
    for family in families():
        if not family.knows_loras or 2 * sum(_is_alike(module, family) for module in some) < len(some):
            continue
        index = index_of(family.name)
        own = [found for module in of_model if (found := placed(module, index)).linears]
        deeper = len(own) < len(of_model) and any(
            not placed(module, index).linears and _is_alike(module, family) for module in of_model
        )
        if own and len(own) >= 0.9 * len(of_model) and not deeper:
            ranks[family.name] = len(own), _fitting(own, published_linears(family), file)
    best = [family_of(name) for name, rank in ranks.items() if rank == max(ranks.values())]
    told = [family for family in best if _is_named(family.base_version, file.metadata)]
    of_base = [family for family in best if family.class_name == base_class]
    likely = [*told, *of_base, *filter(is_known, best), *best][:1]
    alike = (family for one in likely for family in (one, *best) if family.class_name == one.class_name)
    return tuple(told or dict.fromkeys(alike))


def _is_named(version: str, metadata: Mapping[str, str]) -> bool:
    """By most programs, or by sd-scripts."""
    return version in (metadata.get("ss_base_model_version"), metadata.get("ss_model_type"))


def _fitting(modules: Iterable[AdaptedModule], linears: Mapping[str, tuple[int, ...]], file: WeightFile) -> int:
    """How many of the modules are as large as a model with these Linears asks for."""
    return sum(_sides_in(one, linears) in _sides(one, file) for one in modules)


def _sides(module: AdaptedModule, file: WeightFile) -> list[tuple[int, int]]:
    """What comes out of a module and what goes into it, by its factors; nothing where that is not known."""
    shapes = {part: file.tensors[name].shape for part, name in module.parts.items()}
    if "A" in shapes and "B" in shapes:
        sides = [_product(shapes["B"], shapes["A"])]
    elif any(part.startswith("hada") for part in shapes):
        sides = [_product(shapes.get("hada_w1_a", ()), shapes.get("hada_w1_b", ()))]
    else:  # a Kronecker product, each factor of which may be one of two
        sides = [
            shapes.get(f"lokr_w{n}") or _product(shapes.get(f"lokr_w{n}_a", ()), shapes.get(f"lokr_w{n}_b", ()))
            for n in "12"
        ]
    if any(len(side) < 2 for side in sides):
        return []
    return [(prod(side[0] for side in sides), prod(side[1] for side in sides))]


def _product(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    return (first[0], second[1]) if len(first) >= 2 and len(second) >= 2 else ()


def _sides_in(module: AdaptedModule, linears: Mapping[str, tuple[int, ...]]) -> tuple[int, int] | None:
    """The same of the Linears that it changes in a published model; None where that has no such."""
    if any(name not in linears for name in module.linears):
        return None
    return sum(linears[name][0] for name in module.linears), linears[module.linears[0]][1]


def placed(module: AdaptedModule, index: Index) -> AdaptedModule:
    """The module with the Linears of a family that it changes; what stands before its name is its prefix then."""
    known, prefix, path = index, module.prefix, module.path
    if prefix.endswith("_"):
        path = path.replace(".", "_")
    while path not in known and "." in path:
        first, _, path = path.partition(".")
        prefix += f"{first}."
    if path not in known:
        return replace(module, linears=(), names="")
    names, linears = known[path]
    if prefix.endswith("_") and "." in module.path:
        names = ""  # no program looks for dots behind such a prefix
    return replace(module, prefix=prefix, path=path, linears=linears, names=names)


def _is_alike(module: AdaptedModule, family: Family) -> bool:
    """Whether the module may be one of the family, whatever the numbers in its name: a first look, at little cost."""
    path, kinds = module.path, _kinds(family.class_name)
    while kinds and _numberless(path) not in kinds and "." in path:
        path = path.partition(".")[2]
    return not kinds or _numberless(path) in kinds


@lru_cache(maxsize=1 << 15)  # each family looks at the same paths
def _numberless(path: str) -> str:
    return _NUMBERS.sub("0", path.replace(".", "_"))


def _in_clip(module: AdaptedModule) -> AdaptedModule:
    """The module of a text encoder, marked where it is one of CLIP's, under the names that it has in all LoRAs."""
    return replace(module, names="t") if _OF_CLIP.fullmatch(module.path.replace("_", ".")) else module


@cache
def _kinds(class_name: str) -> frozenset[str]:
    """The names of all modules of a class without their numbers; none where it was not mined."""
    if class_name not in mined_classes():
        return frozenset()
    kind, tables = classes()[class_name], mined_class_of(class_name)["tables"]
    texts = {name for table in tables for group in table["tensors"].values() for name in group}
    names = {_IN_LISTS.sub("0", name) for name in texts if not name.endswith(".bias")}
    spelt = {one for name in names for one in (name, kind.original(name), processor_name(name))}
    return frozenset(_numberless(name.removesuffix(".weight")) for name in spelt)


@cache
def index_of(family_name: str) -> Index:
    """Every module of the published model, with dots and with _: whose name it is, and what it changes."""
    family = family_of(family_name)
    kind = family.transformer
    if kind is None:
        return {}
    weights = [name for name in kind.tensors(published_config(family)) if not name.endswith(".bias")]
    parts = {name: (name.removesuffix(".weight"),) for name in weights}
    spelt: list[tuple[str, str, tuple[str, ...]]] = [("d", name, of) for name, of in parts.items()]
    for original, names in original_parts(kind.original, weights).items():
        spelt.append(("o", original, tuple(name.removesuffix(".weight") for name in names)))
    if family.convolves:
        old = [(f"{processor_name(of[0])}.weight", of) for of in parts.values()]
        spelt += [("n" if name in parts else "p", name, of) for name, of in old]
    for component, prefix in family.lora_beside.items():
        class_name, config = family.published[component]
        inside = [f"{prefix}{name}" for name in mined_tensors(class_name, config) if name.endswith(".weight")]
        spelt += [("o", name, (name.removesuffix(".weight"),)) for name in inside]
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for whose, name, linears in spelt:
        module = name.removesuffix(".weight")
        found[module] = found.get(module, ("", ()))[0] + whose, linears
    return {**found, **{name.replace(".", "_"): of for name, of in found.items()}}


def _foreign(modules: Iterable[AdaptedModule]) -> str:
    """A family without a record here that the modules are known by."""
    paths = [module.path.replace(".", "_") for module in modules]
    return next((name for name, words in _FOREIGN.items() if any(re.search(words, path) for path in paths)), "")


def published_config(family: Family) -> Mapping[str, object]:
    """The config.json of the model that a family's record is about."""
    return {} if family.memory is None else family.memory.config("")


@cache
def _published(family_name: str) -> dict[str, tuple[int, ...]]:
    family = family_of(family_name)
    return linears_of(family.class_name, published_config(family))


def published_linears(family: Family) -> dict[str, tuple[int, ...]]:
    """`linears_of` of the published model."""
    return _published(family.name)


def linears_of(class_name: str, config: Mapping[str, object]) -> dict[str, tuple[int, ...]]:
    """(out, in) by name of the Linears that a class builds from this config; of the convolutions the sides of their
    windows, too. Raises BadConfig.
    """
    shapes = classes()[class_name].tensors(config)
    return {n.removesuffix(".weight"): s for n, s in shapes.items() if len(s) >= 2 and n.endswith(".weight")}


def misfits(lora: Lora, linears: Mapping[str, tuple[int, ...]]) -> Iterator[tuple[AdaptedModule, str]]:
    """The modules that do not fit a model with these Linears, each with why, as a phrase."""
    for module in lora.whole_pairs:
        if module.of_text_encoder:
            continue
        if not module.linears or any(name not in linears for name in module.linears):
            yield module, "the model has no such module"
            continue
        down, up = (lora.file.tensors[module.parts[part]].shape for part in ("A", "B"))
        out, inputs = sum(linears[name][0] for name in module.linears), linears[module.linears[0]][1]
        if len(down) >= 2 and len(up) >= 2 and (up[0], down[1]) != (out, inputs):
            yield module, f"made for {up[0]} x {down[1]}, the model has {out} x {inputs}"
