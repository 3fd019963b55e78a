"""Repairs for kohya's trainers. Those that change what is trained are asked."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ..doctor.model import Config, Finding, Fix, SetValue
from ..doctor.rules import repair
from .config import file_of


@repair("KOH002", "KOH005", "KOH007", "KOH010", "KOH013")
def set_what_is_asked_for(finding: Finding, config: Config) -> Iterator[Fix]:
    """The value that the trainer's documentation, or the dataset, asks for."""
    new = finding.evidence.get("new")
    if new is None:
        return
    pointer = str(finding.evidence["pointer"])
    option = pointer.rpartition("/")[2]
    step = SetValue(file_of(finding, config), pointer, _typed(file_of(finding, config), str(new)))
    yield Fix(f"set {option} to {new}", (step,), safety="ask", training_effect="changes-result")


def _typed(path: str, text: str) -> str | float:
    """A number where the file has types: a config file's values are not converted by the trainer."""
    if not path.lower().endswith((".toml", ".json")):
        return text
    try:
        return float(text)
    except ValueError:
        return text


@repair("KOH015")
def write_the_type(finding: Finding, config: Config) -> Iterator[Fix]:
    """The same value in the type that the trainer asks for: it would have stopped, so no training changes."""
    new = finding.evidence.get("new")
    if new is not None:
        step = SetValue(file_of(finding, config), str(finding.evidence["pointer"]), new)
        yield Fix(f"write {finding.args['name']} as {json.dumps(new, ensure_ascii=False)}", (step,))
