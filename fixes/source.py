"""Repairs of Python source, the trainer's and the user's own: by the span that was found, and never unasked."""

from __future__ import annotations

from collections.abc import Iterator

from ..doctor.model import Config, Finding, Fix
from ..doctor.model.shell import quoted
from ..doctor.rules import repair
from .edits import text_at

_TITLES = {
    "random-weights": "name missing tensors again instead of filling them with random values",
    "mismatch-ignored": "refuse tensors of another shape again",
    "meta-skipped": "stop there with an error that says what is missing",
    "to-empty": "move the tensors, which fails where there is no data",
}


@repair("SRC001", "SRC002")
def edit_the_source(finding: Finding, config: Config) -> Iterator[Fix]:
    """The few characters that fail fast, or that guard the write; else the file as git has it."""
    seen = finding.evidence
    if (step := text_at(finding)) is not None:
        title = _TITLES.get(str(seen.get("kind")), "let the run go on when the sizes cannot be kept")
        named = f"--trainer-source {quoted(str(seen['checkout']))} "
        yield Fix(title, (step,), safety="ask", command=_command(finding, config, named))
    if seen.get("git") and "kind" in seen:
        command = f"git -C {quoted(str(seen['checkout']))} checkout -- {quoted(str(seen['file']))}"
        path = f"{seen['checkout']}/{seen['file']}"
        yield Fix("restore the trainer's own file", (), safety="show", command=command, target=path)


@repair("SRC010", "SRC012", "SRC013", "SRC014")
def checkpoint_without_reentry(finding: Finding, config: Config) -> Iterator[Fix]:
    """The same numbers, and the graph stays whole; asked, because it is the user's own source."""
    if (step := text_at(finding)) is not None:
        deepspeed = "non_reentrant" in step.new
        how = "DeepSpeed's non_reentrant_checkpoint" if deepspeed else "use_reentrant=False"
        yield Fix(f"checkpoint with {how}", (step,), safety="ask", command=_command(finding, config))


def _command(finding: Finding, config: Config, named: str = "") -> str:
    return f"zdoctor fix {quoted(config.path)} {named}--select {finding.rule} --allow asked --apply"
