"""CFG006: comments that are meant to allow a finding."""

from __future__ import annotations

from collections.abc import Iterator

from ...doctor.model import Config, Finding, found
from ...doctor.model.allowing import allow_comments
from ...doctor.rules import NotApplicable, rule


@rule("CFG006", "warning", "idle-allow-comment")
def idle_allow_comment(config: Config) -> Iterator[Finding]:
    """A comment that allows a finding without a reason, or where there is none.

    What: `# zdoctor: allow PTH001 — reason` behind a key, or in the line above it, takes what PTH001 says of that
    line out of the report and out of the exit code; the report counts it as allowed, with the reason.
    Why: Half a year later nobody knows why a finding was allowed, and a comment that stands for nothing hides the
    next one of its kind. A comment without a reason is not obeyed.
    Repair: Write the reason, or delete the comment.
    Signature: None; it concerns zdoctor alone.
    """
    comments = list(allow_comments(config))
    if not comments:
        raise NotApplicable
    for comment in comments:
        if not comment.reason:
            yield found(
                comment.where,
                "The comment allows {rules} without a reason, and is not obeyed.",
                otherwise="The finding stays in the report.",
                rules=", ".join(comment.rules),
            )
