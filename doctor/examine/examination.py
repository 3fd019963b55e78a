"""From a config path to a Report: read, probe what the rules ask for, run them.

A config is examined as it stands and as it was meant (`turns`), so that one stray backslash or one misspelt section
does not hide the other findings.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from ..model import Config, Facts, Report, Run, Unknown
from ..model.environment import Environment
from ..model.findings import CONFIG_UNREAD
from ..model.record import dataclass, replace
from ..model.script import MicroStep
from ..model.trainer import RUNNER
from ..probe.world import World
from ..rules import Rule, all_rules
from ..trainers.read import Reading, read_config
from .allowed import without_allowed
from .config_file import beside, load
from .engine import merge, prescribe
from .judged import judged
from .look import Look
from .trainable import trainable
from .turns import in_turn

TEXT_FACTS = {"config", "system"}
KEY_FACTS = {*TEXT_FACTS, "run", "schema"}
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
    prove: bool = True,
) -> Examination:
    """Check one config on one machine. `text` stands in for the file's content (to look before writing).

    `deep` reads the model's files as a whole, to compare their content. `microstep` is what a training script did
    when it was tried; without it the rules about that are left out. `as_runner` looks at the runs as those of
    zdoctor's own runner; the facts then hold what it is given. Raises UserError with what it would not obey.
    Without `prove` repairs of the config are as rules gave them, not examined before they are offered.
    """
    started = time.perf_counter()
    given = all_rules() if rules is None else rules  # before the config is read: plug-ins bring families, too

    def read(data: bytes, texts: Mapping[str, bytes]) -> Reading:
        files, whole = beside(path, texts), world.is_meant
        return read_config(path, data, world.variables, trainer=trainer, beside=files, whole=whole)

    reading = read(load(path) if text is None else text, {})
    first, written = reading, reading.config
    of = written.trainer
    look = Look(world, deep=deep, microstep=microstep)
    offered = [rule for rule in given if microstep is not None or "microstep" not in rule.needs]
    on_text = [rule for rule in offered if _is_on_text(rule) and rule.suits(of)]
    of_runner = [rule for rule in offered if not _is_on_text(rule) and rule.suits(RUNNER)]
    about_runs = of_runner if as_runner else [r for r in offered if not _is_on_text(r) and r.suits(of)]

    def on_runs(reading: Reading, asked: Sequence[Rule] = about_runs) -> tuple[Report, tuple[Facts, ...]]:
        runs: Sequence[Run | Unknown] = [look.own(reading.config, run) for run in reading.runs] or [_no_run(reading)]
        if as_runner and reading.runs:
            runs = [look.translated(reading.config, run) for run in reading.runs]
        looks = [look.with_fixes(_suited(asked, run), reading.config, run) for run in runs]
        return merge([report for report, _ in looks]), tuple(known for _, known in looks)

    def text_of(reading: Reading) -> Report:
        return look.with_fixes(on_text, reading.config, _no_run(reading))[0]

    seen = in_turn(reading, read, text_of, on_runs, {rule.id for rule in about_runs if _is_on_keys(rule)})
    report, reading, facts = seen.report, seen.reading, seen.facts
    if prove and any(finding.fixes for finding in report.findings):
        from .offers import Bench, proven

        def again(texts: Mapping[str, str], whole: bool) -> Report:
            own = {name: text.encode("utf-8", "surrogateescape") for name, text in texts.items()}
            now = read(own.pop(path, written.text.encode("utf-8", "surrogateescape")), own)
            asked = about_runs if whole else [rule for rule in about_runs if OF_THE_CONFIG.issuperset(rule.needs)]
            return merge([text_of(now), on_runs(now, asked)[0]])

        originals = {file.path: file.text for file in (*reading.config.beside, *first.config.beside, written)}
        report = proven(Bench(report, originals, prescribe(text_of(first)).steps, again))
    can_train: tuple[bool, tuple[str, ...]] = (False, ())
    if not as_runner and not seen.repaired:
        can_train = trainable(look, reading, facts, of_runner, {finding.rule for finding in report.errors})
    report = replace(
        report,
        trainer=RUNNER if as_runner else of,
        command="train" if as_runner else report.command,
        elapsed_ms=(time.perf_counter() - started) * 1000,
        machine=world.system.recorded,
        deep=deep,
        trainable=can_train[0],
        held_back=can_train[1],
        python=python_of(facts),
        elsewhere=next((one.elsewhere for one in facts if isinstance(one.elsewhere, str) and one.elsewhere), ""),
        outputs=tuple(
            world.system.shown(run.output_folder) for run in reading.runs if run.output_folder and run.kind != "other"
        ),
    )
    asked = tuple(sorted((*on_text, *about_runs), key=lambda rule: rule.id))
    might = [rule for rule in all_rules() if rule.suits(RUNNER if as_runner else of)]
    report = judged(
        report, seen.last, asked, [rule for rule in might if microstep is not None or "microstep" not in rule.needs]
    )
    report = without_allowed(report, written, asked, might)
    return Examination(report, facts, reading, asked, written)


def python_of(facts: Sequence[Facts]) -> str:
    """The interpreter whose packages were looked at, and why it is that one."""
    for one in facts:
        seen = one.environment
        if isinstance(seen, Environment) and seen.found_by:
            torch = f"torch {seen.versions['torch']}" if seen.has("torch") else "no torch"
            release = f"Python {seen.release}, " if seen.release else ""
            return f"{seen.python}: {release}{torch}, {len(seen.versions)} packages ({seen.found_by})"
    return ""


def _is_on_text(rule: Rule) -> bool:
    return TEXT_FACTS.issuperset(rule.needs)


def _is_on_keys(rule: Rule) -> bool:
    return KEY_FACTS.issuperset(rule.needs)


def _suited(rules: Sequence[Rule], run: Run | Unknown) -> Sequence[Rule]:
    if isinstance(run, Unknown) or run.kind != "other":
        return rules
    # Such a job trains nothing: rules about training are moot. What a config may hold is known of every process, and
    # those rules look which one it is.
    return [rule for rule in rules if MACHINE_FACTS.issuperset(rule.needs) or "schema" in rule.needs]


def _no_run(reading: Reading) -> Unknown:
    problem = reading.config.problem
    return Unknown(CONFIG_UNREAD if problem else reading.reason)
