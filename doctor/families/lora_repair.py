"""The repaired copy of a LoRA: which of its tensors it holds, under which names. No number is changed. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..model.lora import ADAPTER_METADATA, PAIR, AdaptedModule, Lora, LoraValues
from ..model.plans import CopiedTensor
from ..model.record import dataclass
from .lora_keys import linears_of
from .lora_programs import LOADERS, common_prefix, judged_modules, passed_over

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
    prefix = _prefix(lora, told is not None)
    changes = [f"without the half pairs ({len(half)})"] * bool(half)
    changes += [f"without the modules that are not finite ({len(bad)})"] * bool(bad)
    changes += ["with the names that ComfyUI and diffusers look for"] * (prefix is not None)
    changes += ["with alpha keys"] * (told is not None)
    if not changes or not any(lora.is_whole(module) for module in kept):
        return None
    factor = None if told is None else told.alpha / told.rank
    tensors: list[CopiedTensor] = []
    for module in kept:
        own = None if module.of_text_encoder else prefix
        tensors += _as_it_is(module) if own is None else _renamed(lora, module, own)
        if factor is not None and lora.is_whole(module):
            names = [module.key] if own is None else [own + name for name in module.linears]
            alpha = factor * lora.rank_of(module)
            tensors += [CopiedTensor(f"{name}.alpha", "", number=alpha) for name in names]
    tensors += [CopiedTensor(name, name) for name in lora.others]
    gone = (*_HASHES, ADAPTER_METADATA) if told is not None else _HASHES
    metadata = {key: text for key, text in lora.file.metadata.items() if key not in gone}
    return Repaired(tuple(tensors), metadata, tuple(changes), bool(bad))


def _is_bad(module: AdaptedModule, values: LoraValues) -> bool:
    return any(name in values.tensors and values.tensors[name].bad for name in module.parts.values())


def _prefix(lora: Lora, new_alpha: bool) -> str | None:
    """The prefix that the names get, None where they stay; only what is known to be the same under it is renamed."""
    own = judged_modules(lora)
    prefix = common_prefix(lora.class_name, alpha=new_alpha or any("alpha" in module.parts for module in own))
    if prefix is None or lora.kind != "LoRA" or not all(module.linears and module.words for module in own):
        return None
    if any(set(module.parts) > {*PAIR, "alpha"} for module in own):
        return None
    named = all(module.prefix == prefix and module.words == "A" for module in own)
    wrong = any(passed_over(lora, program) for program in LOADERS)
    return prefix if wrong or (new_alpha and not named) else None


def _as_it_is(module: AdaptedModule) -> Iterator[CopiedTensor]:
    return (CopiedTensor(name, name) for name in module.parts.values())


def _renamed(lora: Lora, module: AdaptedModule, prefix: str) -> Iterator[CopiedTensor]:
    """The pair of each Linear; one of a fused Linear is split: each part has its A and the rows of its B."""
    if not lora.is_whole(module):
        return
    rows = _rows(lora, module)
    for name, (first, last) in zip(module.linears, rows, strict=True):
        part = (first, last) if len(rows) > 1 else None
        yield CopiedTensor(f"{prefix}{name}.lora_A.weight", module.parts["A"])
        yield CopiedTensor(f"{prefix}{name}.lora_B.weight", module.parts["B"], part)
        if "alpha" in module.parts:
            yield CopiedTensor(f"{prefix}{name}.alpha", module.parts["alpha"])


def _rows(lora: Lora, module: AdaptedModule) -> Sequence[tuple[int, int]]:
    """The rows of B that belong to each Linear; in a model of another size they have the same shares."""
    published = linears_of(lora.class_name, {})
    outs = [published[name][0] for name in module.linears]
    height = lora.file.tensors[module.parts["B"]].shape[0]
    ends = [height * sum(outs[: i + 1]) // sum(outs) for i in range(len(outs))]
    return list(zip([0, *ends], ends, strict=False))
