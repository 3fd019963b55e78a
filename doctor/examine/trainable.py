"""Whether zdoctor's own runner would train what another trainer's config asks for."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import UserError
from ..model import Facts, ModelFolder, Run, Unknown
from ..model.facts import NOT_ASKED
from ..model.record import replace
from ..model.script import SCRIPT
from ..rules import Rule
from ..trainers import trainer_of
from ..trainers.read import Reading
from .look import Look
from .translate import obeyed

# What is another fact for another trainer.
BY_TRAINER = {"config", "run", "environment", "installed", "model", "writes", "room", "memory", "script"}


def trainable(
    look: Look, reading: Reading, seen: Sequence[Facts], rules: Sequence[Rule], found: set[str]
) -> tuple[bool, tuple[str, ...]]:
    """Whether `zdoctor train` would start, and the rules by whose errors alone it does not.

    `rules` are the runner's, `found` those that found errors for the config's own trainer.
    """
    if reading.config.trainer in (None, SCRIPT) or not reading.runs or written_twice(reading.runs):
        return False, ()
    # What stops the trainer mostly stops the runner, too: that is asked first.
    suspects = [rule for rule in rules if rule.id in found]
    others = [rule for rule in rules if rule.id not in found]
    for facts in seen:
        if isinstance(facts.run, Unknown) or (isinstance(facts.elsewhere, str) and facts.elsewhere):
            return False, ()
        try:
            run = look.translated(reading.config, facts.run, facts)
        except UserError:
            return False, ()
        known = _alike(facts, reading.config.trainer)
        stops, known = _stops(look, reading, run, suspects, known)
        if stops is not None or not obeyed(run):
            return False, ()
        stops, _ = _stops(look, reading, run, others, known)
        if stops is not None:
            return False, stops
    return True, ()


def _stops(
    look: Look, reading: Reading, run: Run, rules: Sequence[Rule], known: Facts
) -> tuple[tuple[str, ...] | None, Facts]:
    """The rules whose errors keep the run from being trained, none where an error is only not ruled out."""
    report, facts = look.report(rules, reading.config, run, known)
    serious = {rule.id for rule in rules if rule.severity == "error"}
    if report.ok and not any(outcome.rule in serious for outcome in report.unknown):
        return None, facts
    return tuple(dict.fromkeys(finding.rule for finding in report.errors)), facts


def _alike(facts: Facts, trainer: str | None) -> Facts:
    """What is the same whoever trains."""
    # The runner has datasets of its own where a folder of sd-scripts stands for those in it.
    anew = BY_TRAINER | {"datasets"} if trainer_of(trainer).component_files else BY_TRAINER
    if isinstance(facts.model, ModelFolder) and facts.model.layout == "diffusers":
        anew = anew - {"model"}
    return replace(facts, **dict.fromkeys(anew, NOT_ASKED))


def written_twice(runs: Sequence[Run]) -> Run | None:
    """The first run whose files another one of the config writes, too."""
    outputs = [(run.output_folder, run.name) for run in runs]
    return next((run for run, output in zip(runs, outputs, strict=True) if outputs.count(output) > 1), None)
