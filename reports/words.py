"""What the formats say alike: counts, places, how safe a repair is, what to type next."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from urllib.parse import quote

from ..doctor.model import SEVERITIES, Finding, Fix, Outcome, Report
from ..doctor.model.findings import CONFIG_UNREAD, NOT_SELECTED
from ..doctor.model.printable import printable
from ..doctor.model.said import AsIs, filled, joined
from ..doctor.rules import Rule

PLURALS = {"finding": "findings", "error": "errors", "warning": "warnings", "note": "notes"}
SAFETY = {"safe": "safe", "ask": "your decision", "show": "by hand"}
EFFECTS = {
    "none": "",
    "equivalent": ", changes how the run trains, not its result",
    "changes-result": ", changes the training result",
}
MOST_LINES = 12
CRASHED = "crashed (our bug, please report)"
SECTION = re.compile(r"^(What|Why|Repair|Upstream|Signature):[ \n]*", re.M)


def clean(text: str) -> str:
    """`text` with a replacement character for each that is unprintable, and one kind of line end."""
    return printable(re.sub("\r\n?", "\n", text))


def heading(report: Report) -> str:
    deep = "--deep" if report.deep else ""
    looked_at = (deep, "--", report.started) if report.words else (report.config, deep)
    return " ".join(filter(None, ("zdoctor", report.command, *looked_at)))


def who(report: Report) -> list[str]:
    """Whose config it is, the recorded machine that it was held against, and the settings file that was obeyed."""
    unknown = "trainer not recognised" if report.config else "the environment alone"
    told = [report.trainer or unknown]
    told += [filled("machine: {name}", {"name": AsIs(report.machine)})] if report.machine else []
    told += [filled("settings: {file}", {"file": AsIs(report.settings)})] if report.settings else []
    return told


def about(report: Report) -> list[str]:
    """What was looked at, how it shows that it is for another machine, and by which Python; a line each."""
    return list(filter(None, (report.subject, report.elsewhere, report.python)))


def counted(severity: str, count: int) -> str:
    return f"{count} {severity if count == 1 else PLURALS[severity]}"


def verdict(report: Report) -> str:
    """What was found, by severity, and what was not judged: "nothing found" only where all was."""
    return _verdict(report, joined(", ", (area for areas in unjudged(report).values() for area in areas)))


def with_reasons(report: Report) -> str:
    """The verdict, with the first clause of why something was not judged; for where nothing else tells it."""
    open = (joined(": ", (joined(", ", areas), _in_short(reason))) for reason, areas in unjudged(report).items())
    return _verdict(report, joined("; ", open))


def _verdict(report: Report, open: str) -> str:
    counts = {severity: sum(f.severity == severity for f in report.findings) for severity in SEVERITIES}
    parts = [counted(severity, n) for severity, n in counts.items() if n]
    if report.known:
        parts = [*(parts or ["nothing new"]), f"{len(report.known)} known"]
    found = joined(", ", parts) or ("no error found" if open or not report.ok else "nothing found")
    return filled("{found}; not judged: {open}", {"found": found, "open": open}) if open else found


def unjudged(report: Report) -> dict[str, list[str]]:
    """What was not judged, by the reason; reasons that begin with the same clause are one."""
    found: dict[str, tuple[str, list[str]]] = {}
    for one in report.not_judged:
        areas = ["all else"] if one.reason in (NOT_SELECTED, CONFIG_UNREAD) else [one.what]
        reason, before = found.get(_in_short(clean(one.reason)), (clean(one.reason), []))
        found[_in_short(reason)] = reason, list(dict.fromkeys([*before, *areas]))
    return dict(found.values())


def _in_short(reason: str) -> str:
    return re.split(r"[;.] ", reason, maxsplit=1)[0].strip().rstrip(".")


def tone(report: Report) -> str:
    """The colour of the verdict: "good" only where nothing was found and all was judged."""
    if not report.ok:
        return "error"
    if report.unknown or report.not_judged:
        return "unknown"
    gravest = next((finding.severity or "note" for finding in report.findings), "good")
    return "warning" if any(finding.severity == "error" for finding in report.known) else gravest


def outcomes(report: Report) -> str:
    """How the rules ended that found nothing; those that had nothing to look at are not counted."""
    told = [f"{len(report.passed)} {'rule' if len(report.passed) == 1 else 'rules'} passed"]
    told += [f"{len(report.unknown)} not known"] * bool(report.unknown)
    told += [f"{len(report.crashed)} crashed"] * bool(report.crashed)
    told += [f"{counted('finding', len(report.allowed))} allowed"] * bool(report.allowed)
    return joined(", ", (*told, *of_baseline([report])))


def of_baseline(reports: Sequence[Report]) -> Iterator[str]:
    """What the baseline knows of all that was looked at, what of it is gone, and why it says less than it could."""
    all = [report.baseline for report in reports if report.baseline is not None]
    known, gone = sum(len(one.known) for one in all), sum(one.gone for one in all)
    if known:
        yield f"{counted('finding', known)} known by {all[0].file}"
    if gone:
        yield f"{gone} of {all[0].file} gone (--write-baseline takes {'it' if gone == 1 else 'them'} out)"
    yield from dict.fromkeys(f"{one.file}: {one.problem}" for one in all if one.problem)


def how(fix: Fix) -> str:
    """How safe a repair is and what it does to the training, "" where there is nothing to carry out."""
    return f"{SAFETY[fix.safety]}{EFFECTS[fix.training_effect]}" if fix.steps else ""


def titled(fix: Fix) -> str:
    return filled(f"{{title}} [{how(fix)}]", {"title": fix.title}) if how(fix) else fix.title


def alike(findings: Sequence[Finding]) -> list[list[Finding]]:
    """The findings, those of one rule together that are about one place, or say the same of several."""
    kinds: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        of = (finding.severity, finding.rule)
        said, place = (*of, finding.message, finding.otherwise), (*of, finding.where)
        kind = kinds.get(said) or kinds.get(place if finding.where is not None else said)
        if kind is None:
            kind = []
        kinds[said] = kinds[place] = kind
        kind.append(finding)
    return list({id(kind): kind for kind in kinds.values()}.values())


def lines_of(findings: Sequence[Finding]) -> str:
    """The first lines that findings are about, as far as they are known."""
    known = sorted({finding.where.line for finding in findings if finding.where is not None and finding.where.line})
    lines = ", ".join([*map(str, known[:MOST_LINES]), *["…"] * (len(known) > MOST_LINES)])
    return f"line{'s' * (len(known) > 1)} {lines}" if lines else "no line"


def line_of(finding: Finding) -> str:
    """The line and the key of a finding, before what is said of it."""
    line = "" if finding.where is None or finding.where.line is None else f"line {finding.where.line}"
    place = " ".join(filter(None, (line, key(finding))))
    return f"{place}: " if place else ""


def told(finding: Finding) -> str:
    """All that is said of a finding, line by line."""
    lines = [finding.text()]
    if finding.otherwise:
        lines.append(f"otherwise: {finding.consequence()}")
    for fix in finding.fixes:
        lines.append(f"fix: {titled(fix)}")
        if fix.command:
            lines.append(f"$ {fix.command}")
    return "\n".join(lines)


def place(finding: Finding) -> str:
    """path:line:column, as far as they are known."""
    where = finding.where
    return "" if where is None else ":".join(str(p) for p in (where.path, where.line, where.column) if p is not None)


def placed(finding: Finding) -> str:
    """path:line:column and the key."""
    return f"{place(finding)}  {key(finding)}".rstrip()


def key(finding: Finding) -> str:
    """The last part of the finding's pointer: the key, or datasets/0 for an entry of a list."""
    where = finding.where
    if where is None or not where.pointer:
        return ""
    above, _, last = where.pointer.rpartition("/")
    return f"{above.rpartition('/')[2]}/{last}" if last.isdigit() else last


def by_reason(outcomes: Sequence[Outcome]) -> dict[str, list[str]]:
    """The rules of each reason, so that one missing fact is said once."""
    found: dict[str, list[str]] = {}
    for outcome in outcomes:
        found.setdefault(outcome.reason, []).append(outcome.rule)
    return found


def named(reason: str, rules: Sequence[str]) -> str:
    """The rules that ended for a reason; how many, where the config itself is the reason and nearly all are meant."""
    return f"{len(rules)} rules" if reason == CONFIG_UNREAD and len(rules) > 1 else " ".join(rules)


def sections(rule: Rule) -> Iterator[tuple[str, str]]:
    """What the docstring says under each of its headings."""
    parts = SECTION.split(rule.doc)
    yield from ((name, text.strip()) for name, text in zip(parts[1::2], parts[2::2], strict=True))


def paragraphs(text: str) -> list[str]:
    """The paragraphs of a docstring, each in one line; they are translated one by one."""
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", text) if part.strip()]


def uri(path: str) -> str:
    """A relative reference, or a file URI for a path that is absolute on any system."""
    if re.match(r"[A-Za-z]:[\\/]", path):
        return "file:///" + path[0] + ":" + _quoted(path[2:].replace("\\", "/"))
    if path.startswith("\\\\"):
        return "file:" + _quoted(path.replace("\\", "/"))
    path = PurePath(path).as_posix()
    return f"file://{_quoted(path)}" if path.startswith("/") else _quoted(path)


def _quoted(path: str) -> str:
    return quote(path, safe="/", errors="replace")
