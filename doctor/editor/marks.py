"""Findings as marks in the text of a config, and repairs as its new text."""

from __future__ import annotations

from collections.abc import Iterator

from ..configs.edit import EditError, apply_edits
from ..examine.examination import Examination
from ..model import Finding, Fix, ReplaceText, SetValue
from ..model.extent import extent, lines_of
from ..model.record import dataclass


@dataclass(frozen=True)
class Mark:
    """A finding, and the line (from 0) and columns that an editor underlines for it."""

    line: int
    start: int
    end: int
    finding: Finding


def marks(seen: Examination) -> Iterator[Mark]:
    """Every finding, but notes that have no place in this file; what else has none there is marked in its first line.

    Of a text that is no config of a trainer nothing is marked.
    """
    config = seen.written
    if seen.report.trainer is None:
        return
    first = len(lines_of(config.text)[0])
    for finding in seen.report.findings:
        own = finding.where is not None and finding.where.path == config.path
        place = extent(config, finding.where) if own else None
        if place is not None:
            yield Mark(*place, finding)
        elif finding.severity != "note" or own:
            line = (finding.where.line or 1) - 1 if own and finding.where is not None else 0
            yield Mark(line, 0, first if line == 0 else len(lines_of(config.text)[line]), finding)


def mended(text: str, path: str, fix: Fix) -> str | None:
    """The text of the file with the fix made; None for a fix that does anything else, or that does not fit it."""
    edits = [step for step in fix.steps if step.path == path and isinstance(step, SetValue | ReplaceText)]
    try:
        return apply_edits(text, edits) if edits and len(edits) == len(fix.steps) else None
    except EditError:
        return None
