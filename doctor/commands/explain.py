"""`zdoctor explain`: what a rule is about, or why a run ended."""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import BinaryIO

from ...reports import crash as report
from ...reports.terminal import Line
from ..crash import compare, decode, excerpt, explain
from ..errors import UserError
from ..model.crashes import Explanation, Signature
from ..model.shell import quoted
from ..rules import all_repairs, all_rules
from ..rules.selection import select
from . import console
from .config_argument import config_argument
from .examined import examined
from .told import config_in

_BLOCK = 1 << 20
INCOMPLETE = 3
_NO_TEXT = re.compile("[\x00-\x08\x0e-\x1a\x7f-\x9f\ufffd]")
_SAMPLE = 1 << 16
_PARTS = re.compile(r"\n\s*\n|\n(?=(?:What|Why|Repair|Upstream|Signature):)")  # of a rule's docstring


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="LOGFILE|RULE", help="a log (- for standard input), or a rule's id or name")
    config_argument(parser, "the run's config, to confirm the cause")
    parser.add_argument("--diff", metavar="LOGFILE", help="the log of a run that worked: what was not the same")


def run(options: argparse.Namespace) -> int:
    if options.what == "-" or (Path(options.what).exists() and not Path(options.what).is_dir()):
        return _log(options)
    if options.config is not None or options.diff is not None:
        raise UserError(f"{options.what}: there is no such log file.", "zdoctor explain train.log config.yaml")
    return _rule(options.what)


def _rule(word: str) -> int:
    if Path(word).is_dir():
        raise UserError(f"{word} is a folder, not a log.", "zdoctor explain train.log")
    if "/" in word or "\\" in word or word.endswith((".log", ".txt")):
        raise UserError(f"{word}: there is no such file.")
    try:
        named = select(all_rules(), [word], [])
    except UserError as error:
        raise UserError(f"there is no rule {word!r}, and no such file.", error.hint) from None
    for rule in named:
        cures = ", ".join(repair.cure.__name__.replace("_", " ") for repair in all_repairs().get(rule.id, ()))
        parts = [
            f"{rule.id} {rule.name} ({rule.severity})",
            *_PARTS.split(rule.doc),
            f"Repairs: {cures or 'none'}",
        ]
        console.emit("\n\n".join(map(_filled, parts)) + "\n\n")
    return 0


def _filled(part: str) -> str:
    return textwrap.fill(" ".join(part.split()), console.width(), break_long_words=False, break_on_hyphens=False)


def _log(options: argparse.Namespace) -> int:
    log = read(options.what)
    name = "standard input" if options.what == "-" else options.what
    if not log.strip():
        raise UserError(f"{name} is empty: there is no output of a run in it.", "zdoctor explain train.log")
    told, lines = explained(log, options.config)
    if told.failure is None and len(_NO_TEXT.findall(log[:_SAMPLE])) > len(log[:_SAMPLE]) / 10:
        raise UserError(f"{name} holds no text, so it is no log.", "zdoctor explain train.log")
    if told.failure is None and config_in(("", options.what)):
        raise UserError(f"{options.what} is a config, not a log.", f"zdoctor check {quoted(options.what)}")
    console.show(lines)
    if options.diff is not None:
        seen = compare(read(options.diff), log)
        console.emit(f"\nBeside {options.diff}, which worked:\n\n")
        console.show(report.comparison_lines(seen))
    return INCOMPLETE if told.failure is not None and told.known is None and not told.rules else 0


def explained(log: str, config: str | None) -> tuple[Explanation, Iterator[Line]]:
    """Why a run ended, by its log, and the same for a person; with `config`, what its rules say of it now."""
    rules = {rule.id: rule for rule in all_rules()}
    signatures = [Signature(rule.id, *pair, rule.trainers) for rule in rules.values() for pair in rule.prevents]
    told = explain(log, signatures)
    confirmed = _confirm(config, told.rules) if config and told.rules else {}
    named = {id: (rule.name, rule.title) for id, rule in rules.items()}
    return told, report.lines(told, named, config=config, confirmed=confirmed)


def _confirm(config: str, rules: tuple[str, ...]) -> dict[str, str]:
    """What these rules say of the config on this machine, now."""
    report = examined(config, selected=rules).report
    said = dict.fromkeys(report.passed, "passed; what the log shows is not there now.")
    said |= dict.fromkeys(report.not_applicable, "does not apply; what it looks at is not there now.")
    said |= {outcome.rule: f"not known: {outcome.reason}." for outcome in (*report.unknown, *report.crashed)}
    for finding in reversed(report.findings):
        said[finding.rule] = f"confirmed. {finding.text()}"
    return {rule: said[rule] for rule in rules if rule in said}


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
