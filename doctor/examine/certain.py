"""What a rule says of a value that only a shell can tell, or of a setting that may stand elsewhere, is not known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..model import Finding, Run


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
