"""From a config path to a Report: read, probe what the rules ask for, run them.

A text that the trainer's parser would reject or corrupt is examined as its certain repair reads, so that one stray
backslash does not hide the other findings.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from ..model import Config, Facts, ReplaceText, Report, Run, Step, Unknown
from ..model.findings import CONFIG_UNREAD
from ..model.record import dataclass, replace
from ..model.script import MicroStep
from ..model.trainer import RUNNER
from ..probe.world import World
from ..rules import Rule, all_rules
from ..trainers.read import Found, Reading, read_config
from .config_file import beside, load
from .engine import merge, prescribe
from .judged import judged
from .look import Look
from .trainable import trainable

TEXT_FACTS = {"config", "system"}
MACHINE_FACTS = {*TEXT_FACTS, "gpus", "packages"}
OF_THE_CONFIG = {*MACHINE_FACTS, "run", "schema", "checkout", "environment"}


@dataclass(frozen=True)
class Examination:
    """A report with what it rests on: the facts of each run, and the reading that the rules saw.

    `written` is the config as it lies on disk, where `reading` may be of its repaired text.
    """

    report: Report
    facts: tuple[Facts, ...]
    reading: Reading
    rules: tuple[Rule, ...]
    written: Config


def examine_config(
    path: str,
    world: World,
    rules: Sequence[Rule] | None = None,
    text: bytes | None = None,
    *,
    deep: bool = False,
    trainer: str | None = None,
    microstep: MicroStep | Unknown | None = None,
    as_runner: bool = False,
) -> Examination:
    """Check one config on one machine. `text` stands in for the file's content (to look before writing).

    `deep` reads the model's files as a whole, to compare their content. `microstep` is what a training script did
    when it was tried; without it the rules about that are left out. `as_runner` looks at the runs as those of
    zdoctor's own runner; the facts then hold what it is given. Raises UserError with what it would not obey.
    """
    started = time.perf_counter()
    given = all_rules() if rules is None else rules  # before the config is read: plug-ins bring families, too
    look = Look(world, deep=deep, microstep=microstep)
    offered = [rule for rule in given if microstep is not None or "microstep" not in rule.needs]
    find = beside(path)

    def seen_as(texts: Mapping[str, bytes], rules: Sequence[Rule]) -> Seen:
        """What is seen where these files, by their paths, hold these bytes."""

        def found(name: str) -> Found | None:
            file = find(name)
            return file if file is None or file.path not in texts else replace(file, data=texts[file.path])

        def read(data: bytes) -> Reading:
            return read_config(path, data, world.variables, trainer=trainer, beside=found)

        return _seen(look, read, texts[path], rules, as_runner)

    data = load(path) if text is None else text
    seen = seen_as({path: data}, offered)
    written, reading, report = seen.written, seen.reading, seen.report
    if any(finding.fixes for finding in report.findings):
        from .offers import Bench, proven

        files = {file.path: file for file in (written, *reading.config.beside)}

        def again(texts: Mapping[str, str], whole: bool) -> Report:
            rules = offered if whole else [rule for rule in offered if OF_THE_CONFIG.issuperset(rule.needs)]
            return seen_as({path: data, **{name: _encoded(text) for name, text in texts.items()}}, rules).report

        texts = {name: file.text for name, file in files.items()}
        report = proven(Bench(report, texts, seen.repairs, again))
    can_train: tuple[bool, tuple[str, ...]] = (False, ())
    if not as_runner and not seen.about_text.errors:
        of_runner = [rule for rule in offered if not _is_on_text(rule) and rule.suits(RUNNER)]
        can_train = trainable(look, reading, seen.facts, of_runner, {finding.rule for finding in report.errors})
    report = replace(
        report,
        trainer=RUNNER if as_runner else written.trainer,
        command="train" if as_runner else report.command,
        elapsed_ms=(time.perf_counter() - started) * 1000,
        machine=world.system.recorded,
        deep=deep,
        trainable=can_train[0],
        held_back=can_train[1],
        outputs=tuple(run.output_folder for run in reading.runs if run.output_folder and run.kind != "other"),
    )
    might = [rule for rule in all_rules() if rule.suits(RUNNER if as_runner else written.trainer)]
    report = judged(
        report, seen.facts, seen.asked, [r for r in might if microstep is not None or "microstep" not in r.needs]
    )
    return Examination(report, seen.facts, reading, seen.asked, written)


@dataclass(frozen=True)
class Seen:
    """One look at a config whose files hold certain bytes; `repairs` are the edits that `reading` is of."""

    written: Config
    reading: Reading
    repairs: tuple[Step, ...]
    about_text: Report
    report: Report
    facts: tuple[Facts, ...]
    asked: tuple[Rule, ...]


def _seen(look: Look, read: Callable[[bytes], Reading], data: bytes, rules: Sequence[Rule], as_runner: bool) -> Seen:
    reading = read(data)
    written = reading.config
    of = written.trainer
    on_text = [rule for rule in rules if _is_on_text(rule) and rule.suits(of)]
    about_runs = [rule for rule in rules if not _is_on_text(rule) and rule.suits(RUNNER if as_runner else of)]
    about_text, _ = look.with_fixes(on_text, written, _no_run(reading))
    reading, repairs = _as_repaired(about_text, reading, read)
    runs: Sequence[Run | Unknown] = [look.own(reading.config, run) for run in reading.runs] or [_no_run(reading)]
    if as_runner and reading.runs:
        runs = [look.translated(reading.config, run) for run in reading.runs]
    looks = [look.with_fixes(_suited(about_runs, run), reading.config, run) for run in runs]
    report = merge([about_text, *(_on_disk(report, written.path, repairs) for report, _ in looks)])
    asked = tuple(sorted((*on_text, *about_runs), key=lambda rule: rule.id))
    return Seen(written, reading, repairs, about_text, report, tuple(facts for _, facts in looks), asked)


def _is_on_text(rule: Rule) -> bool:
    return TEXT_FACTS.issuperset(rule.needs)


def _suited(rules: Sequence[Rule], run: Run | Unknown) -> Sequence[Rule]:
    if isinstance(run, Unknown) or run.kind != "other":
        return rules
    # Such a job trains nothing: rules about training are moot. What a config may hold is known of every process, and
    # those rules look which one it is.
    return [rule for rule in rules if MACHINE_FACTS.issuperset(rule.needs) or "schema" in rule.needs]


def _no_run(reading: Reading) -> Unknown:
    problem = reading.config.problem
    return Unknown(CONFIG_UNREAD if problem else reading.reason)


def _as_repaired(
    report: Report, reading: Reading, read: Callable[[bytes], Reading]
) -> tuple[Reading, tuple[Step, ...]]:
    """The reading of the text with its certain repairs in place, and these; as it is where there are none."""
    config = reading.config
    steps = tuple(step for step in prescribe(report).steps if step.path == config.path)
    if not steps:
        return reading, ()
    from ..configs.edit import EditError
    from .offers import edited

    try:
        text = edited({config.path: config.text}, steps)[config.path]
    except EditError:
        return reading, ()
    repaired = read(_encoded(text))
    if repaired.config.problem is not None and config.problem is None:
        return reading, ()
    return repaired, steps


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _on_disk(report: Report, path: str, repairs: Sequence[Step]) -> Report:
    """The report on a repaired text with its edits where they are in the text that lies on disk."""
    made = sorted((step for step in repairs if isinstance(step, ReplaceText)), key=lambda step: step.start)
    if not made:
        return report

    def moved(step: Step) -> Step:
        if not isinstance(step, ReplaceText) or step.path != path:
            return step
        by = 0
        for edit in made:
            if edit.start + by >= step.start:
                break
            by += len(edit.new) - len(edit.old)
        return replace(step, start=step.start - by, end=step.end - by)

    findings = [
        replace(finding, fixes=tuple(replace(fix, steps=tuple(map(moved, fix.steps))) for fix in finding.fixes))
        for finding in report.findings
    ]
    return replace(report, findings=tuple(findings))
