"""Repairs of what an earlier run left behind."""

from __future__ import annotations

from collections.abc import Iterator

from ..doctor.model import Config, Finding, Fix, Quarantine, SetValue
from ..doctor.rules import repair
from .config import file_of


@repair("TRN007", "MDL008")
def take_the_rank_of_the_save(finding: Finding, config: Config) -> Iterator[Fix]:
    """With the rank of the save, or of the LoRA to start from, all of it is trained on."""
    rank = finding.evidence.get("rank")
    if rank is None:
        return
    step = SetValue(file_of(finding, config), str(finding.evidence["pointer"]), rank)
    yield Fix(f"train rank {rank}, as the saved LoRA has it", (step,), safety="ask", training_effect="changes-result")


@repair("TRN010")
def set_the_save_aside(finding: Finding) -> Iterator[Fix]:
    """Nothing can be read of it; the save before it is then the newest."""
    yield Fix("move the damaged save out of the way", (Quarantine(str(finding.evidence["path"])),), safety="ask")
