"""The two edits that most repairs are made of: a value at the place of a finding, and the text that it names."""

from __future__ import annotations

from ..doctor.model import Finding, ReplaceText, Run, SetValue


def value_at(finding: Finding, value: object) -> SetValue:
    """A value at the pointer that a finding gives, in the file that it is about."""
    return SetValue(_file(finding), str(finding.evidence["pointer"]), value)


def value_of(run: Run, name: str, value: object) -> SetValue:
    """A value for a field or key of a run, written or not."""
    return SetValue(run.where(name).path, run.pointer(name), value)


def text_at(finding: Finding) -> ReplaceText | None:
    """The replacement that a finding gives; None where it gives none."""
    seen = finding.evidence
    if "start" not in seen:
        return None
    return ReplaceText(_file(finding), seen["start"], seen["end"], seen["old"], seen["new"])


def _file(finding: Finding) -> str:
    if finding.where is None:
        raise ValueError(f"{finding.rule} is about no file")
    return finding.where.path
