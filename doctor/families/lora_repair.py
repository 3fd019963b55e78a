"""The repaired copy of a LoRA: which of its tensors it holds, under which names. No number is changed. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..model.lora import ADAPTER_METADATA, PAIR, AdaptedModule, Lora, LoraValues
from ..model.plans import CopiedTensor
from ..model.record import dataclass
from . import family_of
from .lora_keys import index_of, published_linears
from .lora_programs import LOADERS, Common, common_names, judged_modules, passed_over
from .record.single_file import same_name

_FACTORS = {"A": ("lora_A", "lora_B"), "down": ("lora_down", "lora_up")}
_HASHES = ("sshs_model_hash", "sshs_legacy_hash")  # of the tensors as they were


@dataclass(frozen=True)
class Repaired:
    """The tensors and the metadata of the copy, and what is other in it, as phrases. `loses` says that it lacks
    modules that have both factors.
    """

    tensors: tuple[CopiedTensor, ...]
    metadata: Mapping[str, str]
    changes: tuple[str, ...]
    loses: bool


def repaired(lora: Lora, values: LoraValues) -> Repaired | None:
    """A copy that every program applies as a whole; None where there is nothing to mend, or nothing would be left."""
    if not lora.is_pairs:
        return None
    half = lora.half_pairs
    bad = [module for module in lora.whole_pairs if _is_bad(module, values)]
    kept = [module for module in lora.modules if module not in half and module not in bad]
    told = lora.told_alpha if not any("alpha" in module.parts for module in lora.modules) else None
    common = _common(lora, told is not None)
    changes = [f"without the half pairs ({len(half)})"] * bool(half)
    changes += [f"without the modules that are not finite ({len(bad)})"] * bool(bad)
    changes += ["with the names that ComfyUI and diffusers look for"] * (common is not None)
    changes += ["with alpha keys"] * (told is not None)
    if not changes or not any(lora.is_whole(module) for module in kept):
        return None
    factor = None if told is None else told.alpha / told.rank
    tensors: list[CopiedTensor] = []
    for module in kept:
        names = [module.key] if common is None else _names(lora, module, common)
        stays = common is None or (module.of_text_encoder and not _is_renamed(module, common))
        tensors += _as_it_is(module) if stays else _renamed(lora, module, names, common)
        if factor is not None and lora.is_whole(module):
            alpha = factor * lora.rank_of(module)
            tensors += [CopiedTensor(f"{name}.alpha", "", number=alpha) for name in names]
    tensors += [CopiedTensor(name, name) for name in lora.others]
    gone = (*_HASHES, ADAPTER_METADATA) if told is not None else _HASHES
    metadata = {key: text for key, text in lora.file.metadata.items() if key not in gone}
    return Repaired(tuple(tensors), metadata, tuple(changes), bool(bad))


def _is_bad(module: AdaptedModule, values: LoraValues) -> bool:
    return any(name in values.tensors and values.tensors[name].bad for name in module.parts.values())


def _common(lora: Lora, new_alpha: bool) -> Common | None:
    """The names that the modules get, None where they stay; only what is the same under them is renamed."""
    own = judged_modules(lora)
    common = common_names(lora, new_alpha or any("alpha" in module.parts for module in own))
    if common is None or lora.kind != "LoRA" or not all(module.words for module in own):
        return None
    if any(set(module.parts) > {*PAIR, "alpha"} for module in own):
        return None
    if not all(_names(lora, module, common) for module in own):
        return None
    named = all(module.prefix == common.prefix and module.words == common.words for module in own)
    wrong = any(passed_over(lora, program) for program in LOADERS)
    return common if wrong or (new_alpha and not named) else None


def _names(lora: Lora, module: AdaptedModule, common: Common) -> list[str]:
    """The names of a module in the copy, as many as it is split into; none where it cannot be named so."""
    if module.of_text_encoder:
        return _of_text_encoder(lora, module) if _is_renamed(module, common) else [module.key]
    names = list(module.linears)
    if common.names == "o":
        family = family_of(lora.families[0])
        original = same_name if family.transformer is None else family.transformer.original
        names = [original(f"{name}.weight").removesuffix(".weight") for name in names[:1]]
        if any(index_of(family.name)[name][1] != module.linears for name in names):
            return []  # a part of a fused module
    return [common.prefix + (name.replace(".", "_") if common.prefix.endswith("_") else name) for name in names]


def _is_renamed(module: AdaptedModule, common: Common) -> bool:
    """Whether a module of a text encoder gets kohya's name: CLIP's, beside such names of the UNet."""
    return module.names == "t" and common.prefix == "lora_unet_"


def _of_text_encoder(lora: Lora, module: AdaptedModule) -> list[str]:
    """The name that kohya's trainers give a module of CLIP."""
    first = "lora_te_" if lora.families[0] == "sd15" else "lora_te1_"
    prefix = {"text_encoder.": first, "text_encoder_2.": "lora_te2_"}.get(module.prefix, module.prefix)
    return [f"{prefix}text_model_{module.path.replace('.', '_').removeprefix('text_model_')}"]


def _as_it_is(module: AdaptedModule) -> Iterator[CopiedTensor]:
    return (CopiedTensor(name, name) for name in module.parts.values())


def _renamed(
    lora: Lora, module: AdaptedModule, names: Sequence[str], common: Common | None
) -> Iterator[CopiedTensor]:
    """The pair of each name; one of a fused Linear is split: each part has its A and the rows of its B."""
    if not lora.is_whole(module) or common is None:
        return
    down, up = _FACTORS[common.words]
    rows = _rows(lora, module) if len(names) > 1 else [None]
    for name, part in zip(names, rows, strict=True):
        yield CopiedTensor(f"{name}.{down}.weight", module.parts["A"])
        yield CopiedTensor(f"{name}.{up}.weight", module.parts["B"], part)
        if "alpha" in module.parts:
            yield CopiedTensor(f"{name}.alpha", module.parts["alpha"])


def _rows(lora: Lora, module: AdaptedModule) -> Sequence[tuple[int, int] | None]:
    """The rows of B that belong to each Linear; in a model of another size they have the same shares."""
    published = published_linears(family_of(lora.families[0]))
    outs = [published[name][0] for name in module.linears]
    height = lora.file.tensors[module.parts["B"]].shape[0]
    ends = [height * sum(outs[: i + 1]) // sum(outs) for i in range(len(outs))]
    return list(zip([0, *ends], ends, strict=False))
