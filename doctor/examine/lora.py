"""A finished LoRA: its header and its numbers, and what the rules about LoRAs say of them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from ..configs.reading import Reading
from ..errors import UserError
from ..families import families
from ..model import Config, Facts, Run, Unjudged, Unknown
from ..model.lora import LORA, Lora
from ..model.record import replace
from ..probe.lora import probe_lora
from ..probe.lora_values import probe_values
from ..probe.world import World
from ..rules import Rule, all_repairs
from .engine import cures, examine
from .examination import Examination
from .judged import about


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
    gaps = {about(rule): outcome.reason for outcome in report.unknown for rule in asked if rule.id == outcome.rule}
    areas = dict.fromkeys(about(rule) for rule in asked)
    report = replace(
        report,
        elapsed_ms=(time.perf_counter() - started) * 1000,
        machine=world.system.recorded,
        trainable=False,
        judged=tuple(area for area in areas if area not in gaps),
        not_judged=(*(Unjudged(area, reason) for area, reason in gaps.items()), *_unheld(lora)),
    )
    return Examination(report, (facts,), Reading(config, (Run(LORA, path, "", 0, "other", "", ""),)), asked, config)


def _values(world: World, lora: Lora | Unknown, progress: Any) -> Any:
    """The numbers, where the file is an adapter and sound."""
    if isinstance(lora, Unknown):
        return lora
    if lora.file.problem or not lora.kind:
        return Unknown("it is no LoRA that can be read")
    return probe_values(world, lora.file, progress)


def _unheld(lora: Lora | Unknown) -> Iterator[Unjudged]:
    """What was not compared of an adapter: a model without a record, or a base that cannot be looked at."""
    if isinstance(lora, Unknown) or not lora.kind:
        return
    if not lora.class_name:
        known = ", ".join(dict.fromkeys(family.title for family in families() if family.transformer))
        of = f"of {lora.foreign}" if lora.foreign else "of a model that has modules of these names"
        yield Unjudged("which programs apply it", f"no record {of}; zdoctor knows those of {known}")
    if lora.base is not None and lora.base.reason:
        yield Unjudged("whether it fits the base model", f"{lora.base.source}: {lora.base.reason}")
