"""Repairs of a user's training script: one word of it, offered with its diff."""

from __future__ import annotations

from collections.abc import Iterator

from ..doctor.model import Config, Finding, Fix, ReplaceText
from ..doctor.model.shell import quoted
from ..doctor.rules import repair


@repair("SRC010", "SRC012", "SRC013", "SRC014")
def checkpoint_without_reentry(finding: Finding, config: Config) -> Iterator[Fix]:
    """The same numbers, and the graph stays whole; asked, because it is the user's own source."""
    seen = finding.evidence
    if "start" not in seen or finding.where is None:
        return
    step = ReplaceText(finding.where.path, int(seen["start"]), int(seen["end"]), str(seen["old"]), str(seen["new"]))
    title = "checkpoint with use_reentrant=False"
    if "non_reentrant" in step.new:
        title = "checkpoint with DeepSpeed's non_reentrant_checkpoint"
    command = f"zdoctor fix {quoted(config.path)} --select {finding.rule} --allow asked --apply"
    yield Fix(title, (step,), safety="ask", command=command)
