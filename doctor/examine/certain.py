"""What a rule says of a value that only a shell can tell, or of a setting that may stand elsewhere, is not known."""

from __future__ import annotations

from collections.abc import Sequence

from ..model import Finding, Run


def certain(found: Sequence[Finding], run: Run | None) -> tuple[list[Finding], str | None]:
    """The findings that rest on what is known, and why the first of the others does not."""
    doubts = {} if run is None else {v.where: f"{name}: {v.unknown}" for name, v in run.settings.items() if v.unknown}
    if run is None or (not doubts and not run.unread):
        return list(found), None
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
