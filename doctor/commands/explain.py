"""`zdoctor explain`: what a rule is about, or why a run ended."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import BinaryIO

from ... import __version__
from ...reports import crash as report
from ...reports import crash_json
from ...reports.json import dumps, plain
from ...reports.painting import Line, Wrapped
from ..crash import decode, excerpt, explain
from ..crash.question import nameless
from ..errors import UserError
from ..model.crashes import Comparison, Explanation, Signature
from ..model.findings import HERE
from ..model.said import said
from ..model.shell import quoted
from ..rules import Rule, all_rules, select
from . import console
from .config_argument import config_argument, format_argument
from .rules import measured
from .told import config_in

_BLOCK = 1 << 20
INCOMPLETE = 3
MOST_SENTENCES = 2
_SENTENCE = re.compile(r"(?<=[.;]) (?=[A-Z])")
_NO_TEXT = re.compile("[\x00-\x08\x0e-\x1a\x7f-\x9f\ufffd]")
_SAMPLE = 1 << 16
_PARTS = re.compile(r"\n\s*\n|\n(?=(?:What|Why|Repair|Upstream|Signature):)")  # of a rule's docstring


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="LOGFILE|RULE", help="a log (- for standard input), or a rule's id or name")
    config_argument(parser, "the run's config, to confirm the cause")
    format_argument(parser)
    parser.add_argument("--diff", metavar="LOGFILE", help="the log of a run that worked: what was not the same")


def run(options: argparse.Namespace) -> int:
    if options.what == "-" or (Path(options.what).exists() and not Path(options.what).is_dir()):
        return _log(options)
    if options.config is not None or options.diff is not None:
        raise UserError(f"{options.what}: there is no such log file.", "zdoctor explain train.log config.yaml")
    return _rule(options.what, options.format)


def _rule(word: str, format: str) -> int:
    if Path(word).is_dir():
        raise UserError(f"{word} is a folder, not a log.", "zdoctor explain train.log")
    if "/" in word or "\\" in word or word.endswith((".log", ".txt")):
        raise UserError(f"{word}: there is no such file.")
    try:
        named = select(all_rules(), [word], [])
    except UserError as error:
        raise UserError(f"there is no rule {word!r}, and no such file.", error.hint) from None
    if format == "json":
        from ...reports import rules_json

        console.emit(rules_json.render(named, measured(), __version__))
        return 0
    for rule in named:
        console.show(page(rule))
    return 0


def page(rule: Rule) -> Iterator[Line]:
    """What is known of a rule: its docstring, paragraph by paragraph, and how often it was wrong."""
    yield [("bold", f"{rule.id} {rule.name} ({said(rule.severity)})")]
    for part in _PARTS.split(rule.doc):
        whole = " ".join(part.split())
        heading, colon, text = whole.partition(": ")
        yield [("", "")]
        yield Wrapped(text, f"{said(heading)}: ") if colon and heading.isalpha() else Wrapped(whole, "")
    for text in _precision(rule.id):
        yield from ([("", "")], Wrapped(text, f"{said('Measured')}: "))
    yield [("", "")]


def _precision(rule: str) -> Iterator[str]:
    if told := measured().get(rule):
        errors, false, configs = told["errors"], told["false"], told["configs"]
        last, unseen, wrong = told["unseen_configs"], told["unseen_errors"], told["unseen_false"]
        yield (
            f"{errors} errors on {configs} configs found outside, {false} of them false, after rules were "
            "mended by what these showed (docs/measurements.md names the false ones). On the last "
            f"{last}, before anything was mended by them: {unseen} errors, {wrong} of them false."
        )


def _log(options: argparse.Namespace) -> int:
    log = read(options.what)
    name = "standard input" if options.what == "-" else options.what
    if not log.strip():
        raise UserError(f"{name} is empty: there is no output of a run in it.", "zdoctor explain train.log")
    told, rules = explained(log, options.config)
    if told.failure is None and len(_NO_TEXT.findall(log[:_SAMPLE])) > len(log[:_SAMPLE]) / 10:
        raise UserError(f"{name} holds no text, so it is no log.", "zdoctor explain train.log")
    if told.failure is None and config_in(("", options.what)):
        from ..probe.live import shell_here

        raise UserError(
            f"{options.what} is a config, not a log.", f"zdoctor check {quoted(options.what, shell_here())}"
        )
    seen = _beside(read(options.diff), log) if options.diff is not None else None
    code = 0 if told.explained else INCOMPLETE
    if options.format == "json":
        data = crash_json.as_data(told, rules, options.config, seen, exit_code=code, version=__version__)
        console.emit(dumps(nameless(plain(data))))
    else:
        console.show(report.lines(told, rules, config=options.config))
        if seen is not None:
            console.say(f"\nBeside {options.diff}, which worked:\n")
            console.show(report.comparison_lines(seen))
    return code


def _beside(good: str, bad: str) -> Comparison:
    from ..crash.compare import compare

    return compare(good, bad)


def explained(log: str, config: str | None) -> tuple[Explanation, dict[str, report.Told]]:
    """Why a run ended, by its log, and the rules that this names; with `config`, what they say of it now."""
    rules = {rule.id: rule for rule in all_rules()}
    signatures = [Signature(rule.id, *pair, rule.trainers) for rule in rules.values() for pair in rule.prevents]
    told = explain(log, signatures)
    confirmed = _confirm(config, told.rules) if config and told.rules else {}
    return told, {id: _told(rules[id], *confirmed.get(id, (None, ""))) for id in told.rules}


def _told(rule: Rule, confirmed: bool | None, said: str) -> report.Told:
    parts = {name: " ".join(text.split()) for name, colon, text in (p.partition(":") for p in _PARTS.split(rule.doc))}
    cause = " ".join((rule.title, *_SENTENCE.split(parts.get("Why", ""))[:MOST_SENTENCES])).strip()
    return report.Told(rule.name, rule.title, cause, parts.get("Repair", ""), confirmed, said)


def _confirm(config: str, rules: tuple[str, ...]) -> dict[str, tuple[bool | None, str]]:
    """What these rules say of the config on this machine, now."""
    from .examined import examined  # which takes half of what explaining a log takes

    report = examined(config, machine=HERE, selected=rules).report
    absent = (*report.passed, *report.not_applicable)
    said: dict[str, tuple[bool | None, str]] = dict.fromkeys(absent, (False, "not the case here, as it is now."))
    said |= {outcome.rule: (None, f"not known: {outcome.reason}.") for outcome in (*report.unknown, *report.crashed)}
    for finding in reversed(report.findings):
        said[finding.rule] = True, f"confirmed here. {finding.text()}"
    return said


def read(name: str) -> str:
    """What of a log tells of its end, "-" being standard input; of one that grows what it was. Raises UserError."""
    try:
        with nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb") as file:
            return decode(excerpt(_blocks(file, Path(name).stat().st_size if Path(name).is_file() else None)))
    except OSError as error:
        raise UserError(f"{name} cannot be read: {error.strerror}.") from None


def _blocks(file: BinaryIO, size: int | None) -> Iterator[bytes]:
    read = 0
    while (size is None or read < size) and (block := file.read(_BLOCK)):
        read += len(block)
        yield block
