"""A finished LoRA: its header and its numbers, and what the rules about LoRAs say of them."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from ..configs.reading import Reading
from ..errors import UserError
from ..families.lora_programs import judged_modules, passed_over, programs_of, without_magnitude
from ..model import Config, Facts, LoraValues, Run, Unknown
from ..model.lora import LORA, Lora
from ..model.printable import printable
from ..model.record import replace
from ..probe.lora import probe_lora
from ..probe.lora_values import probe_values
from ..probe.world import World
from ..rules import Rule, all_repairs
from .engine import cures, examine
from .examination import Examination
from .judged import by_area

# What the metadata says of the model that it was trained on, as sd-scripts, musubi-tuner and others write it.
_ORIGIN = {
    "ss_base_model_version": "base model version",
    "ss_sd_model_name": "trained on",
    "modelspec.architecture": "architecture",
}


def examine_lora(
    path: str, world: World, rules: Sequence[Rule], base: str | None = None, progress: Any = None
) -> Examination:
    """Check a LoRA, with `base` against the model that it is to be used with. Raises UserError for a missing file."""
    started = time.perf_counter()
    if world.stat(world.absolute(path)) is None:
        raise UserError(f"{path}: there is no such file.", "zdoctor check lora.safetensors")
    config = Config(path, "", LORA)
    asked = tuple(rule for rule in rules if rule.suits(LORA))
    lora = probe_lora(world, path, base)
    facts = Facts(config=config, system=world.system, lora=lora, lora_values=_values(world, lora, progress))
    report = cures(examine(facts, asked, config=path, trainer=LORA), facts, all_repairs())
    report = replace(
        by_area(report, asked, dict(_unheld(lora, facts.lora_values))),
        subject="" if isinstance(lora, Unknown) else described(lora, facts.lora_values),
        elapsed_ms=(time.perf_counter() - started) * 1000,
        machine=world.system.recorded,
        trainable=False,
    )
    return Examination(report, (facts,), Reading(config, (Run(LORA, path, "", 0, "other", "", ""),)), asked, config)


def described(lora: Lora, values: LoraValues | Unknown) -> str:
    """What an adapter is, in a line: kind, family, rank, alpha, size, origin, and who applies all of it."""
    if not lora.kind:
        return ""
    words = [f"{lora.kind} for {lora.title or lora.foreign or 'a model that is not known here'}"]
    if lora.is_pairs and lora.whole_pairs:
        words.append(f"rank {_span({lora.rank_of(module) for module in lora.whole_pairs})}")
        keys = [module.parts["alpha"] for module in lora.whole_pairs if "alpha" in module.parts]
        known = values.tensors if isinstance(values, LoraValues) else {}
        alphas = {number for key in keys if key in known and (number := known[key].number) is not None}
        words.append(f"alpha {_span(alphas)}" if alphas else "no alpha keys" if not keys else "alpha not read")
    kinds = "/".join(sorted({lora.file.tensors[name].dtype for one in lora.modules for name in one.parts.values()}))
    words.append(f"{len(lora.modules)} modules in {kinds}")
    words += [f"{label} {lora.file.metadata[key]}" for key, label in _ORIGIN.items() if lora.file.metadata.get(key)]
    programs = [
        name for name in programs_of(lora) if not passed_over(lora, name) and not without_magnitude(lora, name)
    ]
    words += [f"applied as a whole by {', '.join(programs)}"] * bool(programs)
    return printable("; ".join(words))


def _span(numbers: Collection[float]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _values(world: World, lora: Lora | Unknown, progress: Any) -> Any:
    """The numbers, where the file is an adapter and sound."""
    if isinstance(lora, Unknown):
        return lora
    if lora.file.problem or not lora.kind:
        return Unknown("it is no LoRA that can be read")
    return probe_values(world, lora.file, progress)


def _unheld(lora: Lora | Unknown, values: LoraValues | Unknown) -> Iterator[tuple[str, str]]:
    """What of an adapter was not held against anything, and why."""
    if isinstance(lora, Unknown) or not lora.kind:
        return
    if not programs_of(lora):
        model = lora.title or lora.foreign or "a model that has modules of these names"
        yield "which programs apply it", f"no record of {model} says what applies its LoRAs"
    if isinstance(values, LoraValues) and values.unread:
        kinds = ", ".join(sorted({lora.file.tensors[name].dtype for name in values.unread}))
        yield "the numbers", f"{len(values.unread)} tensors are of a type that is not read ({kinds})"
    judged = judged_modules(lora)
    if texts := sum(module.of_text_encoder and module not in judged for module in lora.modules):
        yield "its text encoders", f"no record of the names of {texts} modules of text encoders"
    if lora.base is not None and lora.base.reason:
        yield "whether it fits the base model", f"{lora.base.source}: {lora.base.reason}"
