"""Findings that a comment of the config allows are held apart; a comment that allows nothing is said."""

from __future__ import annotations

from collections.abc import Sequence

from ..model import Allowed, Config, Finding, Report, found
from ..model.allowing import AllowComment, allow_comments
from ..model.record import replace
from ..rules import Rule
from .engine import ordered

ALLOWING = "CFG006"


def without_allowed(report: Report, config: Config, asked: Sequence[Rule], known: Sequence[Rule]) -> Report:
    """The report with the findings that the user allows, with a reason, apart from the others.

    A comment for a rule of `known` that was not `asked`, or that has no answer, is left alone: it may be needed
    elsewhere.
    """
    comments = [comment for comment in allow_comments(config) if comment.reason]
    if not comments:
        return report
    kept: list[Finding] = []
    allowed: list[Allowed] = []
    used: set[tuple[AllowComment, str]] = set()
    for finding in report.findings:
        comment = next((one for one in comments if _is_about(one, finding)), None)
        if comment is None:
            kept.append(finding)
        else:
            used.add((comment, finding.rule))
            allowed.append(Allowed(finding, comment.reason))
    open = {outcome.rule for outcome in (*report.unknown, *report.crashed)}
    open |= {rule.id for rule in known} - {rule.id for rule in asked}
    for rule in asked:
        if rule.id == ALLOWING:
            idle = [(comment, id) for comment in comments for id in comment.rules if id not in open]
            kept += [_idle(comment, id, rule) for comment, id in idle if (comment, id) not in used]
    passed = tuple(id for id in report.passed if id not in {finding.rule for finding in kept})
    return replace(report, findings=ordered(kept), allowed=tuple(allowed), passed=passed)


def _is_about(comment: AllowComment, finding: Finding) -> bool:
    where = finding.where
    return (
        finding.rule in comment.rules
        and where is not None
        and (where.path, where.line) == (comment.where.path, comment.about)
    )


def _idle(comment: AllowComment, id: str, rule: Rule) -> Finding:
    said = found(
        comment.where,
        "The comment allows {rule} in line {line}, where {rule} finds nothing.",
        otherwise="Nothing happens; it would hide what {rule} finds there one day.",
        rule=id,
        line=comment.about,
    )
    return replace(said, rule=rule.id, name=rule.name, severity=rule.severity)
