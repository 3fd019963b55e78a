"""A config examined in turns: as it stands, and with each error of its own text put right, until none is left to put.

One error hides another: of a text that does not parse nothing is read, and below a misspelt section nothing is what
was meant. What is put right here stands in no file; it is only read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from ..configs.reading import Reading
from ..model import Config, Facts, Finding, Fix, ReplaceText, Report, SetValue
from ..model.record import dataclass, replace
from .engine import merge, prescribe

MOST_READINGS = 8
Edit = SetValue | ReplaceText
Texts = Mapping[str, bytes]
Read = Callable[[bytes, Texts], Reading]
"""Reads the bytes of a config, and of the files that it names those given by their paths in place of their own."""


@dataclass(frozen=True)
class Turns:
    """What all turns said. `reading` and `facts` are of the first one in which there were runs to look at, or of the
    last; `last` are the facts of the last. `repaired`: the text as it stands cannot be read rightly.
    """

    report: Report
    reading: Reading
    facts: tuple[Facts, ...]
    last: tuple[Facts, ...]
    repaired: bool


def in_turn(
    reading: Reading,
    read: Read,
    on_text: Callable[[Reading], Report],
    on_runs: Callable[[Reading], tuple[Report, tuple[Facts, ...]]],
    on_keys: Collection[str],
) -> Turns:
    """Ask the rules on the text, then those on the runs; put right what they found in the text, and ask again.

    `on_keys` are the rules on runs that look at the config alone.
    """
    written, sure = reading.config, True
    texts: list[Report] = []
    wholes: list[tuple[Report, Reading, tuple[Facts, ...]]] = []
    while True:
        last = len(texts) + len(wholes) >= MOST_READINGS
        text = _possible(on_text(reading), reading)
        texts.append(_applicable(text, reading, written, sure))
        meant = None if last else _with(_edits(prescribe(text).fixes, reading), reading, read)
        if meant is not None:
            sure = sure and len(texts) == 1
        else:
            meant = None if last else _meant(text, text.errors, reading, read)
            sure = sure and meant is None
        if meant is not None:
            reading = meant
            continue
        report, facts = on_runs(reading)
        wholes.append((_applicable(report, reading, written, sure), reading, facts))
        slips = [finding for finding in report.errors if finding.rule in on_keys]
        meant = None if last else _meant(report, slips, reading, read)
        if meant is None:
            break
        reading, sure = meant, False
    first = wholes[0]
    return Turns(
        _as_one([*texts, *(report for report, _, _ in wholes)], (texts[-1], wholes[-1][0])),
        first[1],
        first[2],
        wholes[-1][2],
        repaired=any(report.errors for report in texts),
    )


def _as_one(reports: list[Report], last: tuple[Report, ...]) -> Report:
    """The findings of all turns; what was not known is that of the last ones."""
    whole, end = merge(reports), merge(last)
    failed = {finding.rule for finding in whole.findings}
    return replace(
        whole,
        unknown=end.unknown,
        passed=tuple(id for id in end.passed if id not in failed),
        not_applicable=tuple(id for id in end.not_applicable if id not in failed),
    )


def _meant(report: Report, findings: Iterable[Finding], reading: Reading, read: Read) -> Reading | None:
    """The reading of the text as it was probably meant: with what is offered against these findings."""
    plan = prescribe(replace(report, findings=tuple(findings)), allow="changes-result", asked=True)
    return _with(_edits(plan.fixes, reading), reading, read)


def _possible(report: Report, reading: Reading) -> Report:
    """The report without the repairs of the text that do not go through: after them it would parse no better."""
    if _go_through(_edits(prescribe(report).fixes, reading), reading):
        return report

    def goes(fix: Fix) -> bool:
        return _go_through(_edits((fix,), reading), reading)

    findings = (replace(one, fixes=tuple(filter(goes, one.fixes))) for one in report.findings)
    return replace(report, findings=tuple(findings))


def _go_through(edits: list[Edit], reading: Reading) -> bool:
    if not edits:
        return True
    from ..configs.edit import EditError, apply_edits

    try:
        for file in _files(reading):
            apply_edits(file.text, [edit for edit in edits if edit.path == file.path])
    except EditError:
        return False
    return True


def _edits(fixes: Iterable[Fix], reading: Reading) -> list[Edit]:
    files = {file.path for file in _files(reading)}
    steps = [step for fix in fixes for step in fix.steps]
    return [step for step in steps if isinstance(step, SetValue | ReplaceText) and step.path in files]


def _files(reading: Reading) -> tuple[Config, ...]:
    return (reading.config, *reading.config.beside)


def _with(edits: list[Edit], reading: Reading, read: Read) -> Reading | None:
    """The reading of the texts with these edits; None where there are none, or they make it worse."""
    if not edits:
        return None
    from ..configs.edit import EditError, apply_edits

    texts: dict[str, bytes] = {}
    for file in _files(reading):
        try:
            text = apply_edits(file.text, [edit for edit in edits if edit.path == file.path])
        except EditError:
            text = file.text
        texts[file.path] = text.encode(file.encoding, "surrogateescape")
    if all(texts[file.path] == file.text.encode(file.encoding, "surrogateescape") for file in _files(reading)):
        return None
    meant = read(texts.pop(reading.config.path), texts)
    worse = meant.config.problem is not None and reading.config.problem is None
    return None if worse else meant


def _applicable(report: Report, reading: Reading, written: Config, sure: bool) -> Report:
    """The report of a reading with those fixes alone that fit the file as it stands.

    `sure`: it stands so, or will with the repairs that go before.
    """
    if _texts(reading.config) == _texts(written):
        return report

    texts = _texts(written)

    def fits(fix: Fix) -> bool:
        edits = (step for step in fix.steps if isinstance(step, SetValue | ReplaceText) and step.path in texts)
        return all(
            sure if isinstance(step, SetValue) else texts[step.path][step.start : step.end] == step.old
            for step in edits
        )

    findings = (replace(one, fixes=tuple(filter(fits, one.fixes))) for one in report.findings)
    return replace(report, findings=tuple(findings))


def _texts(config: Config) -> dict[str, str]:
    return {file.path: file.text for file in (config, *config.beside)}
