"""Repairs of captions and of where they are looked for."""

from __future__ import annotations

from collections.abc import Iterator

from ..doctor.model import Config, DatasetFolder, Finding, Fix, SetValue, WriteText
from ..doctor.rules import repair
from .config import file_of


@repair("DAT003")
def save_as_utf8(finding: Finding, datasets: tuple[DatasetFolder, ...]) -> Iterator[Fix]:
    """The same words in UTF-8: at once where a byte-order mark proves the encoding, asked where it is a guess."""
    garbled = [one for folder in datasets if folder.path == finding.evidence["folder"] for one in folder.garbled]
    if any(not one.encoding for one in garbled):
        return
    steps = tuple(dict.fromkeys(WriteText(one.path, one.text) for one in garbled))
    what = "the caption" if len(steps) == 1 else f"{len(steps)} captions"
    if all(one.encoding == "utf-16" for one in garbled):
        yield Fix(f"save {what} as UTF-8", steps, order=1)
    else:
        yield Fix(f"save {what} as UTF-8, read as Windows-1252", steps, safety="ask", order=1)


@repair("DAT004", "DAT007")
def name_the_ending(finding: Finding, config: Config) -> Iterator[Fix]:
    """The ending that most of the captions have; with it, other words are trained."""
    new = finding.evidence["new"]
    if new is not None and config.trainer == "ai-toolkit":
        step = SetValue(file_of(finding, config), str(finding.evidence["pointer"]), new)
        yield Fix(f"look for captions that end in {new}", (step,), safety="ask", training_effect="changes-result")
