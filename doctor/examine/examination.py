"""From a config path to a Report: read, probe what the rules ask for, run them.

A text that the trainer's parser would reject or corrupt is examined as its certain repair reads, so that one stray
backslash does not hide the other findings.
"""

from __future__ import annotations

import difflib
import stat
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..model import Config, Facts, ModelFolder, ReplaceText, Report, Run, Unknown
from ..model.facts import NOT_ASKED
from ..model.findings import CONFIG_UNREAD
from ..model.microstep import MicroStep
from ..model.record import dataclass, replace
from ..model.script import SCRIPT
from ..model.trainer import RUNNER
from ..probe.dataset import folders_in
from ..probe.gather import gather
from ..probe.world import World
from ..rules import Rule, all_repairs, all_rules
from ..trainers import trainer_of
from ..trainers.read import Beside, Found, Reading, read_config
from .engine import examine, merge, prescribe
from .translate import for_runner, obeyed

READ_LIMIT = (2 << 20) + 1  # one byte past what a reader accepts, so that it can say "too large"
TEXT_FACTS = {"config", "system"}
MACHINE_FACTS = {*TEXT_FACTS, "gpus", "packages"}
# What is another fact for another trainer.
BY_TRAINER = {"config", "run", "environment", "model", "writes", "room", "memory", "script"}


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


def load(path: str) -> bytes:
    """The bytes of a config. Raises UserError for what is no readable file."""
    file = Path(path)
    try:
        found = file.stat()
        if stat.S_ISDIR(found.st_mode):
            raise UserError(f"{path} is a folder, not a config file.", _configs_hint(file))
        if not stat.S_ISREG(found.st_mode):
            raise UserError(f"{path} is not a regular file.")
        with file.open("rb") as handle:
            return handle.read(READ_LIMIT)
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file.", _near(file)) from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from None


def beside(config: str) -> Beside:
    """Finds what a config names as its trainer does, relative to the working directory.

    A config may be checked from elsewhere, so the folders above it are tried as working directories, too.
    """

    def find(name: str) -> Found | None:
        for folder in (Path(), *Path(config).absolute().parents):
            file = folder / name
            try:
                if file.is_file():
                    return Found(str(file), load(str(file)))
            except (OSError, ValueError, UserError):
                continue
        return None

    return find


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

    def read(data: bytes) -> Reading:
        return read_config(path, data, world.variables, trainer=trainer, beside=beside(path))

    reading = read(load(path) if text is None else text)
    written = reading.config
    of = reading.config.trainer
    offered = [
        rule
        for rule in (all_rules() if rules is None else rules)
        if microstep is not None or "microstep" not in rule.needs
    ]
    on_text = [rule for rule in offered if set(rule.needs) <= TEXT_FACTS and rule.suits(of)]
    of_runner = [rule for rule in offered if not set(rule.needs) <= TEXT_FACTS and rule.suits(RUNNER)]
    about_runs = of_runner
    if not as_runner:
        about_runs = [rule for rule in offered if rule not in on_text and rule.suits(of)]

    shared: dict[str, Any] = {} if microstep is None else {"microstep": microstep}
    reports = [_examine(on_text, world, reading, _no_run(reading), shared, False)[0]]
    facts: list[Facts] = []
    reading = _as_repaired(reports[0], reading, read)
    runs: Sequence[Run | Unknown] = reading.runs or [_no_run(reading)]
    if as_runner and reading.runs:
        schema = gather(world, reading.config, runs[0], ("schema",), shared=shared).schema
        runs = [for_runner(run, schema, lambda folder: folders_in(world, folder)) for run in reading.runs]
    for run in runs:
        suited = about_runs
        if isinstance(run, Run) and run.kind == "other":  # such a job trains nothing: rules about training are moot
            # what a config may hold is known of every process, and those rules look which one it is
            suited = [rule for rule in about_runs if set(rule.needs) <= MACHINE_FACTS or "schema" in rule.needs]
        report, known = _examine(suited, world, reading, run, shared, deep)
        reports.append(report)
        facts.append(known)
    report = merge(reports)
    trainable = False
    held_back: tuple[str, ...] = ()
    if not as_runner and not reports[0].errors:
        errors = {finding.rule for finding in report.errors}
        trainable, held_back = _trainable(world, reading, facts, of_runner, errors, deep)
    elapsed = (time.perf_counter() - started) * 1000
    report = replace(
        report,
        trainer=RUNNER if as_runner else of,
        command="train" if as_runner else report.command,
        elapsed_ms=elapsed,
        machine=world.system.recorded,
        deep=deep,
        trainable=trainable,
        held_back=held_back,
        outputs=tuple(run.output_folder for run in reading.runs if run.output_folder and run.kind != "other"),
    )
    return Examination(
        report, tuple(facts), reading, tuple(rule for rule in offered if rule in (*on_text, *about_runs)), written
    )


def _trainable(
    world: World, reading: Reading, seen: Sequence[Facts], rules: Sequence[Rule], found: set[str], deep: bool
) -> tuple[bool, tuple[str, ...]]:
    """Whether `zdoctor train` would start, and the rules by whose errors alone it does not.

    `found` are the rules that found errors for the config's own trainer. What is the same whoever trains is not
    looked at again.
    """
    if reading.config.trainer in (None, SCRIPT) or not reading.runs or written_twice(reading.runs):
        return False, ()
    # The runner has datasets of its own where a folder of sd-scripts stands for those in it.
    anew = BY_TRAINER | {"datasets"} if trainer_of(reading.config.trainer).component_files else BY_TRAINER
    serious = {rule.id for rule in rules if rule.severity == "error"}
    # What stops the trainer mostly stops the runner, too: that is asked first.
    suspects = [rule for rule in rules if rule.id in found]
    for known in seen:
        shared = {name: fact for name, fact in vars(known).items() if name not in anew and fact is not NOT_ASKED}
        if isinstance(known.model, ModelFolder) and known.model.layout == "diffusers":
            shared["model"] = known.model
        if isinstance(known.run, Unknown):
            return False, ()
        schema = gather(world, reading.config, known.run, ("schema",), shared=shared).schema
        try:
            run = for_runner(known.run, schema, lambda folder: folders_in(world, folder))
        except UserError:
            return False, ()
        for some in (suspects, [rule for rule in rules if rule not in suspects]):
            facts = gather(world, reading.config, run, _needed(some), shared=shared, deep=deep)
            report = examine(facts, some, {}, config=reading.config.path, trainer=RUNNER)
            if not report.ok or any(outcome.rule in serious for outcome in report.unknown):
                errors = dict.fromkeys(finding.rule for finding in report.errors)
                return False, tuple(errors if some is not suspects and obeyed(run) else ())
        if not obeyed(run):
            return False, ()
    return True, ()


def written_twice(runs: Sequence[Run]) -> Run | None:
    """The first run whose files another one of the config writes, too."""
    outputs = [(run.output_folder, run.name) for run in runs]
    return next((run for run, output in zip(runs, outputs, strict=True) if outputs.count(output) > 1), None)


def _examine(
    rules: Sequence[Rule], world: World, reading: Reading, run: Run | Unknown, shared: dict[str, Any], deep: bool
) -> tuple[Report, Facts]:
    repairs = all_repairs()
    needed = _needed(rules)
    facts = gather(world, reading.config, run, needed, shared=shared, deep=deep)
    # Repairs may need more than their rules; that is looked up only when there is something to repair.
    report = examine(facts, rules, {}, config=reading.config.path, trainer=reading.config.trainer)
    wanted = {name for f in report.findings for cure in repairs.get(f.rule, ()) for name in cure.needs} - needed
    if report.findings:
        facts = gather(world, reading.config, run, needed | wanted, shared=shared, deep=deep) if wanted else facts
        report = examine(facts, rules, repairs, config=reading.config.path, trainer=reading.config.trainer)
    return report, facts


def _needed(rules: Sequence[Rule]) -> set[str]:
    return {name for rule in rules for name in rule.needs}


def _no_run(reading: Reading) -> Unknown:
    problem = reading.config.problem
    return Unknown(CONFIG_UNREAD if problem else reading.reason)


def _as_repaired(report: Report, reading: Reading, read: Callable[[bytes], Reading]) -> Reading:
    """The reading of the text with its certain repairs in place; the reading as it is when there are none."""
    edits = [step for step in prescribe(report).steps if isinstance(step, ReplaceText)]
    if not edits:
        return reading
    from ..configs.edit import EditError, apply_edits

    config = reading.config
    try:
        text = apply_edits(config.text, edits)
    except EditError:
        return reading
    repaired = read(text.encode(config.encoding, "surrogateescape"))
    return reading if repaired.config.problem is not None and config.problem is None else repaired


def select(rules: Sequence[Rule], chosen: Sequence[str], ignored: Sequence[str]) -> tuple[Rule, ...]:
    """Rules by id, name or id prefix ("PTH"). Raises UserError for a word that names none."""
    for word in (*chosen, *ignored):
        if not any(_named(rule, word) for rule in rules):
            near = difflib.get_close_matches(word.upper(), [r.id for r in rules], 1)
            near = near or difflib.get_close_matches(word.lower(), [r.name for r in rules], 1)
            raise UserError(
                f"there is no rule {word!r}.", f"Did you mean {near[0]}?" if near else "zdoctor rules lists them."
            )
    kept = [rule for rule in rules if not chosen or any(_named(rule, word) for word in chosen)]
    return tuple(rule for rule in kept if not any(_named(rule, word) for word in ignored))


def _named(rule: Rule, word: str) -> bool:
    return rule.name == word.lower() or rule.id.startswith(word.upper())


def _near(file: Path) -> str:
    try:
        names = [p.name for p in file.parent.iterdir() if p.suffix in (".yaml", ".yml", ".json", ".toml", ".py")]
    except OSError:
        return f"The folder {file.parent} does not exist either."
    alike = difflib.get_close_matches(file.stem, [Path(name).stem for name in names], 3)  # all endings are alike
    close = difflib.get_close_matches(file.name, [name for name in names if Path(name).stem in alike], 1)
    return f"Did you mean {file.parent / close[0]}?" if close else f"Looked in {file.parent.absolute()}."


def _configs_hint(folder: Path) -> str:
    names = sorted(p.name for pattern in ("*.yaml", "*.yml") for p in folder.glob(pattern))[:3]
    return f"It holds {', '.join(names)}." if names else "Name the YAML or JSON file of your trainer."
