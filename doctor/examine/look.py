"""Rules asked about one run: the facts they need established, each once, and the fixes of what they found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..model import Config, Facts, Report, Run, Schema, Unknown
from ..model.script import MicroStep
from ..probe.dataset import folders_in
from ..probe.gather import gather
from ..probe.world import World
from ..rules import Rule, all_repairs
from ..trainers import trainer_of
from .engine import Answers, cures, examine
from .translate import for_runner

FEW = 4  # options that may be slips


class Look:
    """One look at a machine for one config. It remembers what is the same for all runs of the config.

    `deep` reads the model's files as a whole; `microstep` is what a training script did when it was tried.
    """

    def __init__(self, world: World, *, deep: bool, microstep: MicroStep | Unknown | None) -> None:
        self.world = world
        self._deep = deep
        self._shared: dict[str, Any] = {} if microstep is None else {"microstep": microstep}
        self._answers = Answers()

    def report(
        self, rules: Sequence[Rule], config: Config, run: Run | Unknown, known: Facts | None = None
    ) -> tuple[Report, Facts]:
        """What the rules say of a run, and the facts they say it of; those in `known` are taken as they are."""
        facts = self._facts(needed(rules), config, run, known)
        return examine(facts, rules, config=config.path, trainer=config.trainer, answers=self._answers), facts

    def with_fixes(self, rules: Sequence[Rule], config: Config, run: Run | Unknown) -> tuple[Report, Facts]:
        """As `report`, with the fixes. What they need beside is established only where there is something to fix."""
        report, facts = self.report(rules, config, run)
        if not report.findings:
            return report, facts
        repairs = all_repairs()
        wanted = {name for found in report.findings for cure in repairs.get(found.rule, ()) for name in cure.needs}
        facts = self._facts(wanted, config, run, facts)
        return cures(report, facts, repairs), facts

    def own(self, config: Config, run: Run) -> Run | Unknown:
        """The run, unless by its options another program has a script of that name, or reads this file."""
        trainer = trainer_of(config.trainer)
        schema = None if trainer.has_processes else self._facts(("schema",), config, run, None).schema
        if not isinstance(schema, Schema) or (trainer.has_gui and config.format == "json"):
            return run
        known = {**(schema.section("", run.process_type) or {}), **dict.fromkeys((*schema.renamed, *trainer.of_gui))}
        names = [name for name, value in run.settings.items() if value.where.path == config.path and "/" not in name]
        strange = [name for name in names if not any(whole.startswith(name) for whole in known)]
        if len(strange) <= max(FEW, len(names) // (2 if config.format == "shell" else 3)):
            return run
        told = f"{len(strange)} of {len(names)} options are none of {schema.trainer}'s {run.process_type}".rstrip()
        return Unknown(f"{told}: it is another program's")

    def translated(self, config: Config, run: Run, known: Facts | None = None) -> Run:
        """The run as zdoctor's own runner takes it. Raises UserError with every setting that it would not obey."""
        schema = self._facts(("schema",), config, run, known).schema
        return for_runner(run, schema, lambda folder: folders_in(self.world, folder))

    def _facts(self, names: Iterable[str], config: Config, run: Run | Unknown, known: Facts | None) -> Facts:
        return gather(self.world, config, run, names, shared=self._shared, before=known, deep=self._deep)


def needed(rules: Iterable[Rule]) -> set[str]:
    return {name for rule in rules for name in rule.needs}
