"""What each command does, as functions that a program can call. `cli` parses words and prints what these return."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .examine.engine import prescribe
from .examine.examination import Examination, examine_config
from .handover import hand_over, not_green
from .machine import world_of
from .model import Fix, Hub, Plan, ReplaceText, Report, TrainingEffect
from .model.errors import UserError
from .model.record import dataclass, field, replace
from .probe.live import LiveWorld
from .rules import all_rules
from .rules.selection import select

if TYPE_CHECKING:
    from .apply import Applied
    from .train import TrainResult

MOST_PASSES = 3


def examination(
    config: str,
    *,
    machine: str | None = None,
    selected: Sequence[str] = (),
    ignored: Sequence[str] = (),
    deep: bool = False,
    trainer: str | None = None,
    trainer_source: str | None = None,
    progress: Any = None,
    as_runner: bool = False,
) -> Examination:
    """Check with everything it rests on; `check` is the short form. `as_runner`: see `examine_config`."""
    rules = select(all_rules(), selected, ignored)
    world = world_of(machine, deep=deep, progress=progress, trainer_source=trainer_source)
    seen = examine_config(config, world, rules, deep=deep, trainer=trainer, as_runner=as_runner)
    whole = not selected and not ignored
    return replace(seen, report=_asked(seen.report, machine, trainer, trainer_source, whole=whole))


def _asked(
    report: Report, machine: str | None, trainer: str | None, trainer_source: str | None, *, whole: bool
) -> Report:
    """The report with what was asked for, so that it can be asked for again.

    Where only some rules were asked for (not `whole`), nobody knows whether `zdoctor train` would start.
    """
    words = (("machine", machine), ("trainer", trainer), ("trainer-source", trainer_source))
    options = tuple((name, value) for name, value in words if value is not None)
    held_back = report.held_back if whole else ()
    return replace(report, options=options, trainable=report.trainable and whole, held_back=held_back)


def check(
    config: str,
    *,
    machine: str | None = None,
    selected: Sequence[str] = (),
    ignored: Sequence[str] = (),
    deep: bool = False,
    trainer: str | None = None,
    trainer_source: str | None = None,
) -> Report:
    """What would go wrong in a training run. Asks no network, imports no torch.

    Writes nothing; a `deep` check, which reads the model's files as a whole, notes in the state folder what it read.
    Whose config it is shows in its keys; `trainer` says it where they do not. `trainer_source` is a checkout of that
    trainer, whose keys then count; one that the config lies in is found without it.
    """
    seen = examination(
        config,
        machine=machine,
        selected=selected,
        ignored=ignored,
        deep=deep,
        trainer=trainer,
        trainer_source=trainer_source,
    )
    return seen.report


def verified(seen: Examination) -> str:
    """What a deep check proved of the contents, in a sentence."""
    hubs = [facts.hub for facts in seen.facts if isinstance(facts.hub, Hub)]
    if not hubs:
        return "No contents were verified: the hub cache was not looked at."
    files = {f.path: f for hub in hubs for repo in hub.repos if repo.used_by for f in repo.files if f.needed}
    if not files:
        return "No contents were verified: the run loads no file of the hub cache."
    good = sum(file.verified for file in files.values())
    unnamed = sum(file.digest is None for file in files.values())
    rest = f"; {unnamed} have no published digest on this machine" if unnamed else ""
    return f"{good} of {len(files)} cached files that the run loads hold exactly what was published (measured){rest}."


@dataclass(frozen=True)
class Fixed:
    """What `fix` would do or did: the first plan and its diff in words; `applied` ids; the report after.

    `offers` are the diffs of edits of source code that wait for a decision.
    """

    before: Report
    plan: Plan
    diff: str
    applied: tuple[str, ...] = ()
    after: Report | None = None
    offers: Mapping[Fix, str] = field(default_factory=dict)


def fix(
    config: str,
    *,
    apply: bool = False,
    allow: TrainingEffect = "none",
    asked: bool = False,
    machine: str | None = None,
    selected: Sequence[str] = (),
    deep: bool = False,
    trainer: str | None = None,
    trainer_source: str | None = None,
    progress: Any = None,
    reading: Any = None,
) -> Fixed:
    """Plan the repairs and, with `apply`, carry them out as a transaction and check again.

    A repair can uncover the next finding (a config that did not parse), so up to three passes are made; they are
    one entry of the history. `asked` takes repairs that are the user's decision, of the rules that `selected` names.
    `progress` is told of bytes copied, `reading` of those read by a `deep` check.
    """
    from .probe.recorded import RecordedWorld

    rules = select(all_rules(), selected, ())

    def look() -> Report:
        world = world_of(machine, deep=deep, progress=reading, trainer_source=trainer_source)
        if apply and isinstance(world, RecordedWorld) and world.live is None:
            raise UserError("a recorded machine can be looked at, not repaired.", "Leave --apply or --machine out.")
        report = examine_config(config, world, rules, deep=deep, trainer=trainer).report
        return _asked(report, machine, trainer, trainer_source, whole=not selected)

    return carry_out(look, apply=apply, allow=allow, asked=asked, progress=progress)


def _offers(plan: Plan) -> dict[Fix, str]:
    """The diffs of the edits of source code that wait for the user's decision."""
    from . import apply as writer

    sources = [
        fix
        for fix in plan.shown
        if fix.steps and all(isinstance(step, ReplaceText) and step.path.endswith(".py") for step in fix.steps)
    ]
    return {fix: writer.diff(Plan(plan.config, (fix,))) for fix in sources}


def carry_out(
    look: Callable[[], Report],
    *,
    apply: bool,
    allow: TrainingEffect = "none",
    asked: bool = False,
    progress: Any = None,
) -> Fixed:
    """What `look` reports, planned and, with `apply`, repaired; as in `fix`."""
    from . import apply as writer
    from .state import state_folder

    first = look()
    plan = prescribe(first, allow=allow, asked=asked)
    binding = writer.bind(plan)
    result = Fixed(first, plan, writer.diff(plan), offers=_offers(plan))
    if not apply or not plan.fixes:
        return result
    state = state_folder()
    applied: list[str] = []
    after = first
    try:
        for _ in range(MOST_PASSES):
            group = applied[0] if applied else None
            done = writer.apply(plan, binding=binding, state=state, progress=progress, group=group)
            applied.append(done.id)
            after = look()
            plan = prescribe(after, allow=allow, asked=asked)
            if not plan.fixes:
                break
            binding = writer.bind(plan)
    except writer.ApplyError as error:
        hint = f"What was done before it: zdoctor undo {applied[0]}" if applied else ""
        raise UserError(str(error), hint) from error
    return replace(result, applied=tuple(applied), after=after)


def extract(
    source: str,
    target: str,
    *,
    only: Sequence[str] = (),
    model_only: bool = False,
    hardlink: bool = False,
    progress: Any = None,
) -> Applied:
    """Copy a cached repository ("org/name" or "org/name@revision") to the new folder `target`, each file verified.

    `only`: these folders and files at its top; `model_only`: what trainers load; `hardlink`: no copies, second names.
    What an earlier extraction to `target` had finished is taken as it is.
    """
    from . import apply as writer
    from .extract import plan_extraction
    from .state import state_folder

    plan = plan_extraction(LiveWorld(), source, target, only=only, model_only=model_only, hardlink=hardlink)
    try:
        return writer.apply(plan, binding=writer.bind(plan), state=state_folder(), progress=progress)
    except writer.ApplyError as error:
        raise UserError(str(error)) from error


def train(
    config: str,
    *,
    max_minutes: float | None = None,
    held_out: int | None = None,
    skip_unreadable: bool = False,
    trainer: str | None = None,
    progress: Any = None,
) -> TrainResult:
    """Train every run of a config with zdoctor's own runner, once all that concerns it is green.

    Raises UserError with what is not green.
    """
    seen = examination(config, trainer=trainer, as_runner=True)
    why = not_green(seen)
    if why:
        raise UserError(
            f"{config} is not green: {why}",
            f"{seen.report.typed('check')} shows it, {seen.report.typed('fix')} repairs.",
        )
    return hand_over(
        seen, max_minutes=max_minutes, held_out=held_out, skip_unreadable=skip_unreadable, progress=progress
    )


def facts(config: str | None, about: str) -> dict[str, Any]:
    """Everything that a check of `config` (or, without one, of the bare machine) asks of this machine, redacted."""
    from .probe.recorder import Recorder

    recorder = Recorder(LiveWorld())
    if config is not None:
        examine_config(config, recorder)
    recorder.gpus()
    recorder.mount(recorder.system.cwd)
    return recorder.record(about)
