"""Repairs of the trainer's own source: by the span that was found, or by git. Nobody's source is edited unasked."""

from __future__ import annotations

from collections.abc import Iterator

from ..doctor.model import Config, Finding, Fix, ReplaceText
from ..doctor.model.shell import quoted
from ..doctor.rules import repair

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
    if finding.where is None:
        return
    if "start" in seen:
        path, rule = finding.where.path, finding.rule
        step = ReplaceText(path, int(seen["start"]), int(seen["end"]), str(seen["old"]), str(seen["new"]))
        title = _TITLES.get(str(seen.get("kind")), "let the run go on when the sizes cannot be kept")
        named = f"--trainer-source {quoted(str(seen['checkout']))}"
        command = f"zdoctor fix {quoted(config.path)} {named} --select {rule} --allow asked --apply"
        yield Fix(title, (step,), safety="ask", command=command)
    if seen.get("git") and "kind" in seen:
        command = f"git -C {quoted(str(seen['checkout']))} checkout -- {quoted(str(seen['file']))}"
        yield Fix("restore the trainer's own file", (), safety="show", command=command)
