"""What an error may rest on: a text that is whole, is run as it stands, and by the trainer that zdoctor knows.

What a rule says of a value that only a shell can tell, or of a setting that may stand elsewhere, is not known. What
it says of a setting is a warning where the text is a template, or where it is abridged or for a fork and the source
of its trainer is not at hand. A text that no version takes (a slip, what does not parse) is an error of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ..model import Finding, Run, Schema
from ..model.record import replace
from ..model.unfinished import (
    ABRIDGED_TEXTS,
    UNLESS_FILLED,
    UNLESS_WHOLE,
    UNLESS_YOURS,
    UNLESS_YOURS_KNOWS,
    UNLESS_YOURS_READS,
    is_filled_by_program,
    is_to_be_filled,
)

_OF_SETTINGS = ("CFG", "KOH", "SIM", "TRN")  # the rules that say what a trainer does with what is written
_OF_TEXTS = ("CFG001", "CFG002")  # and those of them that say it of how a text and its names are written


def doubts_of(run: Run) -> Iterator[str]:
    """What of the settings is not known, and why."""
    if run.unread:
        yield run.unread
    for name, value in run.settings.items():
        if value.unknown:
            yield f"{name}: {value.unknown}"


def certain(found: Sequence[Finding], run: Run | None) -> tuple[list[Finding], str | None]:
    """The findings that rest on what is known, and why the first of the others does not."""
    if not found or run is None or next(doubts_of(run), None) is None:
        return list(found), None
    doubts = {value.where: f"{name}: {value.unknown}" for name, value in run.settings.items() if value.unknown}
    kept: list[Finding] = []
    reason: str | None = None
    for finding in found:
        where = finding.where
        why = doubts.get(where) if where is not None else None
        if why is None and run.unread and where is not None and where.line is None and where.path == run.config:
            why = run.unread  # of what is not written; it may be in there
        if why is None:
            kept.append(finding)
        reason = reason or why
    return kept, reason


def weighed(found: Iterable[Finding], run: Run | None, schema: Schema | None) -> Iterator[Finding]:
    """The findings; an error that is none for every trainer that may be given the text is a warning."""
    findings = list(found)
    doubt = "" if run is None else _doubt(findings, run, schema)
    places = {value.where for value in run.settings.values() if is_to_be_filled(value.value)} if run else set()
    for finding in findings:
        settled = not finding.rule.startswith(_OF_SETTINGS) or finding.rule in _OF_TEXTS
        left_out = finding.where is None or finding.where.line is None
        settled = settled or (left_out and doubt == UNLESS_YOURS)  # a fork lacks as much without a word of it
        unless = UNLESS_FILLED if finding.where in places else doubt if finding.evidence.get("new") is None else ""
        if finding.severity != "error" or settled or not unless:
            yield finding
        else:
            yield replace(finding, severity="warning", otherwise=f"{finding.otherwise} {unless}".strip())


def _doubt(findings: Sequence[Finding], run: Run, schema: Schema | None) -> str:
    """Why what is said of the settings of a text need not come true, "" where nothing shows that."""
    if any(is_filled_by_program(value.value) and not value.unknown for value in run.settings.values()):
        return UNLESS_FILLED
    if schema is not None and schema.source:
        return ""
    if run.unread in ABRIDGED_TEXTS:
        return UNLESS_WHOLE
    others = (UNLESS_YOURS_KNOWS, UNLESS_YOURS_READS)
    return UNLESS_YOURS if any(finding.otherwise in others for finding in findings) else ""
