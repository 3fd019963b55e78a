"""What the names in an adapter file say: which module of which model each tensor is for. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from ..model import WeightFile
from ..model.lora import AdaptedModule, Lora
from ..model.pattern import pattern
from ..model.record import replace
from . import classes, families, family_with
from .part_files import class_in, title_of
from .record import ModelClass
from .record.single_file import original_parts

# What programs put before the name of a module; those that end with _ write the dots of the name as _, too.
PREFIXES = (
    *("base_model.model.", "model.diffusion_model.", "diffusion_model.", "transformer.", "unet."),
    *("text_encoders.", "text_encoder_2.", "text_encoder_3.", "text_encoder."),
    *("lora_unet_", "lora_transformer_", "lora_prior_unet_", "lycoris_"),
    *("lora_te1_", "lora_te2_", "lora_te3_", "lora_te_"),
)
_PART = pattern(
    r"(.+?)(?:"
    r"\.lora_(A|B|down|up|mid)(?:\.(?!weight$|bias$)\w+)?(?:\.(weight|bias))?"
    r"|[._]lora(?:_linear_layer|\d)?\.(down|up)\.weight"
    r"|\.(alpha|dora_scale|magnitude|lora_magnitude_vector|w_norm|b_norm|diff_b|diff|set_weight|reshape_weight"
    r"|lokr_(?:w1|w2|t2)(?:_[ab])?|hada_[wt][12](?:_[ab])?|oft_\w+|on_input|rescale|scalar|[ab][12])(?:\.weight)?"
    r")"
)
_FORMS = {
    "A": r"\.lora_[AB]\.weight",
    "A.default": r"\.lora_[AB]\.default\.weight",
    "down": r"\.lora_(down|up)\.weight",
    "dot": r"\.lora\.(down|up)\.weight",
}
_PAIR = {"A": "A", "down": "A", "B": "B", "up": "B", "mid": "mid"}
_KINDS = {
    **dict.fromkeys(("A", "B"), "LoRA"),
    "lokr": "LoKr",
    "hada": "LoHa",
    "oft": "OFT",
    "on": "IA3",
    "a1": "GLoRA",
    "b1": "GLoRA",
    **dict.fromkeys(("diff", "w", "set"), "full difference"),
}
_MAGNITUDES = ("dora_scale", "magnitude", "lora_magnitude_vector")
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
_EMBEDDINGS = ("emb_params", "string_to_param", "string_to_token", "clip_l", "clip_g", "t5xxl", "qwen")


def read_lora(path: str, file: WeightFile, base_class: str = "") -> Lora:
    """What the adapter file that was named as `path` holds, by its header; `base_class` is its base model's."""
    parts: dict[str, dict[str, str]] = {}
    others: list[str] = []
    for name in file.tensors:
        found = _PART.fullmatch(name)
        if found is None:
            others.append(name)
        else:
            parts.setdefault(found[1], {})[_part(found)] = name
    kind = _kind({part for module in parts.values() for part in module})
    if not kind:
        return Lora(path, file, holds=_holds(file.tensors), others=tuple(file.tensors))
    modules = [_module(key, of) for key, of in parts.items()]
    class_name = _class_of(modules, file, base_class)
    title = family_with(class_name).title if class_name else ""
    if class_name:
        modules = [placed(module, classes()[class_name]) for module in modules]
    return Lora(
        path,
        file,
        kind,
        modules=tuple(modules),
        others=tuple(others),
        class_name=class_name,
        title=title,
        foreign="" if class_name else _foreign(modules),
    )


def _part(found: re.Match[str]) -> str:
    factor = found[2] or found[4]
    if factor is None:
        return found[5]
    return _PAIR[factor] + (".bias" if found[3] == "bias" else "")


def _kind(parts: Iterable[str]) -> str:
    """The kind of adapter that the parts make up, "" where they are none."""
    kinds = {kind for part in parts if (kind := _KINDS.get(part) or _KINDS.get(part.partition("_")[0]))}
    if kinds == {"LoRA"} and not set(_MAGNITUDES).isdisjoint(parts):
        return "DoRA"
    if kinds > {"LoRA"}:  # norms and biases as differences beside the pairs
        kinds -= {"full difference"}
    return " and ".join(sorted(kinds))


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
    words = next((words for words, form in _FORMS.items() if re.fullmatch(form, factor)), "")
    return AdaptedModule(key, prefix, key.removeprefix(prefix), parts, words=words)


def _class_of(modules: Iterable[AdaptedModule], file: WeightFile, base_class: str) -> str:
    """The class with the most of these modules, where it has nearly all, and with the most of their sizes; "" where
    none has.

    Several have as many where Flux's modulation has no LoRA, which Chroma lacks: then the one that the metadata name,
    the base model's, or else the first.
    """
    of_model = [module for module in modules if not module.of_text_encoder and set(module.parts) != {"alpha"}]
    ranks: dict[str, tuple[int, int]] = {}
    for family in families():
        kind = family.transformer
        if kind is None or not family.knows_loras:
            continue
        own = [found for module in of_model if (found := placed(module, kind)).linears]
        if own and len(own) >= 0.9 * len(of_model):
            configs: tuple[Mapping[str, object], ...] = (
                {},
                {} if family.memory is None else family.memory.config(""),
            )
            fit = max(_fitting(own, linears_of(kind.name, config), file) for config in configs)
            ranks[kind.name] = max((len(own), fit), ranks.get(kind.name, (0, 0)))
    best = [name for name, rank in ranks.items() if rank == max(ranks.values())]
    told = [name for name in best if _is_named(family_with(name).base_version, file.metadata)]
    return next(iter((*told, *({base_class} & {*best}), *best)), "")


def _is_named(version: str, metadata: Mapping[str, str]) -> bool:
    """By most programs, or by sd-scripts."""
    return version in (metadata.get("ss_base_model_version"), metadata.get("ss_model_type"))


def _fitting(modules: Iterable[AdaptedModule], linears: Mapping[str, tuple[int, ...]], file: WeightFile) -> int:
    """How many of the modules are as large as a model with these Linears asks for."""
    return sum(_sides_in(one, linears) in _sides(one, file) for one in modules)


def _sides(module: AdaptedModule, file: WeightFile) -> list[tuple[int, int]]:
    """What comes out of a module and what goes into it, by its B and A; nothing where it has not both."""
    up, down = (file.tensors.get(module.parts.get(part, "")) for part in "BA")
    if up is None or down is None or not len(up.shape) == len(down.shape) == 2:
        return []
    return [(up.shape[0], down.shape[1])]


def _sides_in(module: AdaptedModule, linears: Mapping[str, tuple[int, ...]]) -> tuple[int, int] | None:
    """The same of the Linears that it changes in a published model; None where that has fewer blocks."""
    if any(name not in linears for name in module.linears):
        return None
    return sum(linears[name][0] for name in module.linears), linears[module.linears[0]][1]


def placed(module: AdaptedModule, kind: ModelClass) -> AdaptedModule:
    """The module with the Linears of this class that it changes; what stands before its name is its prefix then."""
    known, prefix, path = _index(kind.name), module.prefix, module.path
    if prefix.endswith("_"):
        path = path.replace(".", "_")
    while path not in known and "." in path:
        first, _, path = path.partition(".")
        prefix += f"{first}."
    if path not in known:
        return replace(module, linears=(), names="")
    names, linears = known[path]
    return replace(module, prefix=prefix, path=path, linears=linears, names=names)


@cache
def _index(class_name: str) -> Mapping[str, tuple[str, tuple[str, ...]]]:
    """Every module of the published model, with dots and with _: whose name it is, and its Linears."""
    kind = classes()[class_name]
    weights = [name for name, shape in kind.tensors({}).items() if len(shape) == 2 and name.endswith(".weight")]
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for name in weights:
        found[name.removesuffix(".weight")] = "d", (name.removesuffix(".weight"),)
    for original, parts in original_parts(kind.original, weights).items():
        module, linears = original.removesuffix(".weight"), tuple(part.removesuffix(".weight") for part in parts)
        found[module] = ("do" if module in found else "o"), linears
    return {**found, **{name.replace(".", "_"): of for name, of in found.items()}}


def _foreign(modules: Iterable[AdaptedModule]) -> str:
    """A family without a record here that the modules are known by."""
    paths = [module.path.replace(".", "_") for module in modules]
    return next((name for name, words in _FOREIGN.items() if any(re.search(words, path) for path in paths)), "")


def linears_of(class_name: str, config: Mapping[str, object]) -> dict[str, tuple[int, ...]]:
    """(out, in) by name of the Linears that a class builds from this config. Raises BadConfig."""
    shapes = classes()[class_name].tensors(config)
    return {n.removesuffix(".weight"): s for n, s in shapes.items() if len(s) == 2 and n.endswith(".weight")}


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
