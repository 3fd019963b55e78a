"""Findings that a baseline knows already, told apart by what they say of which key, wherever that stands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence

from .findings import Baselined, Finding, Report
from .record import dataclass, replace


@dataclass(frozen=True)
class Entry:
    """A finding as a baseline keeps it. `key` is the JSON pointer of what it is about, "" where that is no key."""

    rule: str
    key: str
    fingerprint: str


def entry_of(finding: Finding) -> Entry:
    return Entry(finding.rule, _key(finding), fingerprint(finding))


def fingerprint(finding: Finding) -> str:
    """The same while the rule says the same of the same key, wherever that stands and whatever its numbers are."""
    from hashlib import sha256

    said = "\n".join((finding.rule, _key(finding), finding.message))
    return sha256(said.encode("utf-8", "replace")).hexdigest()[:16]


def without_known(report: Report, file: str, entries: Sequence[Entry], open: Container[str]) -> Report:
    """The report with the findings that the baseline `file` knows by its `entries` apart from the new ones.

    Entries that fit no finding are gone, but for those of rules that are `open`.
    """
    left = Counter(entry.fingerprint for entry in entries)
    new: list[Finding] = []
    known: list[Finding] = []
    for finding in report.findings:
        mark = fingerprint(finding)
        (known if left[mark] else new).append(finding)
        left[mark] -= left[mark] > 0
    gone = sum(left[mark] for mark in {entry.fingerprint for entry in entries if entry.rule not in open})
    return replace(report, findings=tuple(new), baseline=Baselined(file, tuple(known), gone))


def _key(finding: Finding) -> str:
    return (finding.where.pointer if finding.where is not None else None) or ""
