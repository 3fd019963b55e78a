"""The report as JUnit XML: a test case for each rule. An error is a failure, a crash an error, not known is skipped,
as is what was not judged (an error with --strict); warnings and notes are the output of a case that passes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.etree import ElementTree as xml

from ..doctor.model import Finding, Report
from ..doctor.rules import Rule
from . import words
from .checked import Checked

COUNTS = ("tests", "failures", "errors", "skipped")


def render(checked: Sequence[Checked], version: str = "") -> str:
    """One XML document with a suite for each config, one trailing newline."""
    suites = [_suite(one.report, one.rules, version) for one in checked]
    sums = {name: sum(int(suite.get(name, 0)) for suite in suites) for name in COUNTS}
    seconds = sum(one.report.elapsed_ms for one in checked) / 1000
    count = {**{name: str(number) for name, number in sums.items()}, "time": f"{seconds:.3f}"}
    top = xml.Element("testsuites", {"name": "zdoctor", **count})
    top.extend(suites)
    xml.indent(top)
    text = xml.tostring(top, encoding="unicode")
    return words.clean(f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n')


def _suite(report: Report, rules: Sequence[Rule], version: str) -> xml.Element:
    """`rules` gives the names of those that found nothing."""
    cases = list(_cases(report, {rule.id: rule.name for rule in rules}))
    counts = (len(cases), *(_with(cases, tag) for tag in ("failure", "error", "skipped")))
    count = {name: str(number) for name, number in zip(COUNTS, counts, strict=True)}
    suite = xml.Element(
        "testsuite", {"name": words.heading(report), **count, "time": f"{report.elapsed_ms / 1000:.3f}"}
    )
    properties = xml.SubElement(suite, "properties")
    told = {"version": version, "trainer": report.trainer, "machine": report.machine, "settings": report.settings}
    told["baseline"] = ", ".join(words.of_baseline([report]))
    for name, value in {**told, "exit_code": report.exit_code}.items():
        if value not in (None, ""):
            xml.SubElement(properties, "property", name=name, value=str(value))
    suite.extend(cases)
    return suite


def _with(cases: Sequence[xml.Element], tag: str) -> int:
    return sum(case.find(tag) is not None for case in cases)


def _cases(report: Report, names: dict[str, str]) -> Iterator[xml.Element]:
    found: dict[str, list[Finding]] = {}
    failing = {id(finding) for finding in report.failing}
    for finding in report.findings:
        found.setdefault(finding.rule, []).append(finding)
    names = {**names, **{finding.rule: finding.name for finding in report.findings}}

    def case(rule: str, outcome: str = "") -> xml.Element:
        name = f"{rule} {names.get(rule, '')}".strip()
        return xml.Element("testcase", classname=f"zdoctor.{report.config.replace('.', '_')}", name=name + outcome)

    for rule in sorted({*found, *report.passed}):
        made = case(rule)
        _tell(made, found.get(rule, ()), failing)
        yield made
    # A rule may end so in one of the config's runs and otherwise in another, so these are cases of their own.
    for outcome in report.crashed:
        made = case(outcome.rule, ": crashed" if outcome.rule in found else "")
        xml.SubElement(made, "error", type="crashed", message=_line(outcome.reason))
        yield made
    for outcome in report.unknown:
        made = case(outcome.rule, ": not known" if outcome.rule in found else "")
        xml.SubElement(made, "skipped", message=_line(f"not known: {outcome.reason}"))
        yield made
    for one in report.not_judged:
        made = case(f"not judged: {one.what}")
        kind = ("error", {"type": "not judged"}) if one in report.missed else ("skipped", {})
        xml.SubElement(made, kind[0], {**kind[1], "message": _line(f"not judged: {one.reason}")})
        yield made
    if report.cut_short:
        made = case("cut short")
        xml.SubElement(made, "error", type="deadline", message=_line(report.cut_short))
        yield made


def _tell(case: xml.Element, findings: Sequence[Finding], failing: set[int]) -> None:
    errors = [finding for finding in findings if id(finding) in failing]
    others = [finding for finding in findings if id(finding) not in failing]
    if errors:
        where = errors[0].where
        if where is not None:
            case.set("file", where.path)
            if where.line is not None:
                case.set("line", str(where.line))
        failure = xml.SubElement(case, "failure", type=errors[0].name, message=_line(errors[0].text()))
        failure.text = "\n\n".join(map(_finding, errors))
    if others:
        xml.SubElement(case, "system-out").text = "\n\n".join(map(_finding, others))


def _finding(finding: Finding) -> str:
    head = f"{finding.severity or 'note'}: {words.place(finding)} {words.key(finding)}".rstrip()
    return f"{head}\n{words.told(finding)}"


def _line(text: str) -> str:
    """Attributes hold one line: parsers make spaces of line ends."""
    return " ".join(words.clean(text).split())
