"""What the formats say alike: counts, places, how safe a repair is, what to type next."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from urllib.parse import quote

from ..doctor.model import SEVERITIES, Finding, Fix, Outcome, Plan, Report
from ..doctor.model.findings import CONFIG_UNREAD, HERE, NOT_SELECTED
from ..doctor.model.lora import LORA
from ..doctor.model.printable import printable
from ..doctor.model.record import replace
from ..doctor.model.said import AsIs, filled, joined
from ..doctor.model.script import SCRIPT
from ..doctor.model.shell import quoted
from ..doctor.model.trainer import RUNNER
from ..doctor.rules import Rule
from ..doctor.trainers import trainer_of

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
    words = ("zdoctor", report.command, report.config, "--deep" if report.deep else "")
    return " ".join(filter(None, words))


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


def own_trainer(report: Report) -> str:
    """That zdoctor's own trainer does without what the errors are about, or what keeps it alone from starting."""
    if report.held_back and not report.errors and not report.crashed:
        rules = ", ".join(report.held_back)
        if report.machine:  # `train` is about the machine that it runs on
            return f"on that machine zdoctor's own trainer would not start ({rules})"
        return f"zdoctor's own trainer would not start ({rules}): {report.typed('train')} says why"
    if not report.errors or not report.trainable or report.crashed:
        return ""
    return f"zdoctor's own trainer can run it as it is: {_train(report)[0]}"


def _train(report: Report) -> tuple[str, str]:
    """What starts zdoctor's own trainer, which stops at pictures that cannot be read unless it is told to go on."""
    if any(finding.rule == "DAT002" for finding in report.findings):
        return report.typed("train", "--skip-unreadable"), "leaves out the pictures that cannot be read"
    return report.typed("train"), ""


def next_steps(report: Report, repaired: bool = False) -> list[tuple[str, str]]:
    """What to type next and what it does, the best first: a second one is another way to the same.

    After a repair that is the user's own trainer, where nothing keeps it from starting any more.
    """
    if told := _repairs(report):
        return [told]
    if any(finding.evidence.get("kind") == "foreign" for finding in report.findings):
        return [(report.typed("check", "--trainer", "NAME"), "reads it as a config of the trainer of that name")]
    if any(outcome.reason == CONFIG_UNREAD for outcome in report.unknown):  # and the rule that says why was not asked
        return [(report.typed("check"), "says why the config cannot be read")]
    if report.crashed:
        return []
    if report.elsewhere:
        it_is_this_one = report.typed("check", f"--machine {HERE}"), "where it is this machine after all"
        return [(report.typed("check"), "on the machine that will train: looks at all of it"), it_is_this_one]
    if report.trainer == SCRIPT and report.command == "check":
        typed = f"zdoctor probe {quoted(f'{report.config}:build_model', report.shell)}"
        return [(typed, "runs one step and says what of it is not trained")]
    ways = [*_train_step(report), *_run_step(report)]
    return ways[::-1] if repaired else ways


def _repairs(report: Report) -> tuple[str, str] | None:
    """What to type about the errors and the repairs that are ready, where there are any."""
    ready = {fix for f in report.findings for fix in f.fixes if fix.safety == "safe" and fix.steps}
    if any(fix.training_effect == "none" for fix in ready):
        there = "on that machine " if report.machine else ""
        return report.typed("fix"), f"shows the plan; {there}--apply carries it out"
    if not report.errors:
        return None
    if ready:
        return report.typed("fix", "--allow result"), "shows the repairs that change training"
    if any(fix.steps for finding in report.errors for fix in finding.fixes):
        return report.typed("fix"), "shows what is yours to decide"
    first = report.errors[0]  # causes come first
    alike = sum(finding.rule == first.rule for finding in report.errors)
    about = f"is about {alike} of the {len(report.errors)} errors" if len(report.errors) > 1 else ""
    return f"zdoctor explain {first.rule}", about


def _train_step(report: Report) -> Iterator[tuple[str, str]]:
    """By zdoctor's own trainer, where it would start."""
    if report.trainable:
        command, about = _train(report)
        yield command, "; ".join(filter(None, ("on that machine" if report.machine else "", about)))


def _run_step(report: Report) -> Iterator[tuple[str, str]]:
    """By the config's own trainer."""
    if not report.ok or not report.config or report.trainer in (None, SCRIPT, LORA, RUNNER):
        return
    there = "on that machine: " if report.machine else ""
    about = f"{there}checks once more and starts {report.trainer}"
    start = trainer_of(report.trainer).start
    if start:
        yield f"zdoctor run -- {start.format(config=quoted(report.config, report.shell))}", about
    else:
        yield "zdoctor run -- COMMAND", f"{about}, COMMAND being what you type for it"


def to_apply(report: Report, allowed: Sequence[str], selected: Sequence[str]) -> tuple[str, str]:
    """What to type to carry a shown plan out, and on which machine."""
    words = [*(f"--allow {what}" for what in allowed), *([f"--select {','.join(selected)}"] if selected else [])]
    if not report.machine:
        return report.typed("fix", *words, "--apply"), ""
    others = tuple(pair for pair in report.options if pair[0] != "machine")
    by_settings = (("machine", HERE),) if others == report.options else ()
    there = replace(report, options=(*others, *by_settings))
    return there.typed("fix", *words, "--apply"), "on that machine"


def decisions(report: Report, plan: Plan) -> dict[Fix, str]:
    """What to type for each repair that a plan leaves to the user and that zdoctor can carry out."""
    typed: dict[Fix, str] = {}
    for finding in report.findings:
        asked = [fix for fix in finding.fixes if fix.steps and fix.safety == "ask"]
        for fix in finding.fixes:
            by_word = fix.safety == "safe" or asked == [fix]
            if fix in plan.shown and fix.steps and not fix.command and by_word:
                words = [f"--select {finding.rule}"]
                words += ["--allow asked"] if fix in asked else []
                words += ["--allow result"] if fix.training_effect != "none" else []
                words += [] if report.machine else ["--apply"]
                typed[fix] = report.typed("fix", *words)
    return typed


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
