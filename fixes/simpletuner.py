"""Repairs of SimpleTuner's options and datasets."""

from __future__ import annotations

from collections.abc import Iterator

from ..doctor.model import Config, Finding, Fix, SetValue
from ..doctor.rules import repair
from .config import file_of, write_what_was_meant


@repair("SIM001")
def write_false_without_quotes(finding: Finding, config: Config) -> Iterator[Fix]:
    """What was written is what is meant; the run then trains as it says."""
    seen = finding.evidence
    if "new" in seen:
        step = SetValue(file_of(finding, config), str(seen["pointer"]), seen["new"])
        yield Fix(f"write {seen['key']} without quotes", (step,), training_effect="changes-result")


@repair("SIM002", "SIM003", "SIM006", "SIM007", "SIM008")
def write_what_the_trainer_takes(finding: Finding, config: Config) -> Iterator[Fix]:
    """The value that the trainer asks for; where there is more than one way, it is asked."""
    yield from write_what_was_meant(finding, config)
