"""The baseline of a check: the findings of each config that are known, and are counted instead of told."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ... import __version__
from ..errors import UserError
from ..examine.examination import Examination
from ..model import Report
from ..model.findings import Baselined
from ..model.known import Entry, entry_of, without_known
from ..model.record import dataclass, replace
from ..rules import all_rules

FORMAT = "zdoctor.baseline/"
SCHEMA = f"{FORMAT}1"


@dataclass(frozen=True)
class Baseline:
    """The entries of each config, by its path from the file's folder on.

    `problem` says why the file says nothing, `version` which zdoctor wrote it.
    """

    file: str
    entries: Mapping[str, Sequence[Entry]]
    version: str = __version__
    problem: str = ""

    def applied(self, seen: Examination) -> Report:
        """The report of a config with what is known of it apart."""
        if self.problem:
            return replace(seen.report, baseline=Baselined(self.file, problem=self.problem))
        report = without_known(seen.report, self.file, self._of(seen.report.config), _open(seen))
        known = report.baseline
        if known is not None and known.gone and report.findings and self.version != __version__:
            told = f"what zdoctor {self.version}, which wrote it, said in other words is new"
            report = replace(report, baseline=replace(known, problem=told))
        return report

    def _of(self, config: str) -> Sequence[Entry]:
        return self.entries.get(_named(config, self.file), ())

    def renewed(self, seen: Iterable[Examination]) -> Baseline:
        """The baseline with all that was found now; of what was not looked at, it stays as it is."""
        base = os.path.dirname(os.path.abspath(self.file))
        entries = {name: of for name, of in self.entries.items() if os.path.exists(os.path.join(base, name))}
        for one in seen:
            open = _open(one)
            kept = [entry for entry in self._of(one.report.config) if entry.rule in open]
            entries[_named(one.report.config, self.file)] = [*map(entry_of, one.report.findings), *kept]
        return Baseline(self.file, {name: of for name, of in entries.items() if of})

    def write(self) -> None:
        """Raises UserError where it cannot be written."""
        configs = {
            name: [{"rule": one.rule, "key": one.key, "fingerprint": one.fingerprint} for one in of]
            for name, of in sorted(self.entries.items())
        }
        told = {"schema": SCHEMA, "version": self.version, "configs": configs}
        try:
            Path(self.file).write_text(json.dumps(told, indent=1) + "\n", encoding="ascii")
        except OSError as error:
            raise UserError(f"{self.file} cannot be written: {error.strerror}.") from None


def read_baseline(file: str, *, to_write: bool) -> Baseline:
    """The baseline in a file; one that cannot be used says so in `problem`, and then nothing is known.

    Raises UserError for a file that is not there unless it is `to_write`, and for one to write that is none.
    """
    try:
        text = Path(file).read_bytes()
    except FileNotFoundError:
        if to_write:
            return Baseline(file, {})
        raise UserError(f"{file}: there is no such file.", "--write-baseline writes it.") from None
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}.") from None
    try:
        told = json.loads(text)
        schema = told.get("schema") if isinstance(told, dict) else None
        ours = isinstance(schema, str) and schema.startswith(FORMAT)
        problem = (
            "" if schema == SCHEMA else f"its schema is {schema!r}, not {SCHEMA}" if ours else "it is no baseline"
        )
        entries = {} if problem else {str(name): [_entry(one) for one in of] for name, of in told["configs"].items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        ours, told, entries = b'"zdoctor.baseline/' in text, {}, {}
        problem = f"it cannot be read ({type(error).__name__}: {error})"
    if to_write and not ours:
        raise UserError(f"{file} is no baseline of zdoctor, and would be replaced.", "Name another file.")
    return Baseline(file, entries, str(told.get("version")) if not problem else "", problem)


def _entry(told: Any) -> Entry:
    return Entry(str(told["rule"]), str(told["key"]), str(told["fingerprint"]))


def _named(config: str, file: str) -> str:
    """The path of a config from the baseline's folder on, with slashes of one kind."""
    whole = os.path.abspath(config)
    try:
        return Path(os.path.relpath(whole, os.path.dirname(os.path.abspath(file)))).as_posix()
    except ValueError:  # on another drive
        return Path(whole).as_posix()


def _open(seen: Examination) -> set[str]:
    """The rules that might find something and gave no answer this time."""
    report, asked = seen.report, {rule.id for rule in seen.rules}
    known = {rule.id for rule in all_rules() if rule.suits(report.trainer)}
    if report.cut_short:
        return known
    return {outcome.rule for outcome in (*report.unknown, *report.crashed)} | (known - asked)
