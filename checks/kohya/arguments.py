"""Entries of optimizer_args and lr_scheduler_args that the optimizer or the schedule does not take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...doctor.model import Config, Finding, Run, Severity
from ...doctor.rules import NotApplicable, prevents, rule
from ...doctor.trainers.kohya.arguments import OF_EVERY_SCHEDULE, OF_MUSUBI, OPTIMIZERS, SCHEDULES, taken_by
from ..keys.misspelled import meant
from ..keys.values import bad
from . import TRAINERS, left_to_the_command_line, on, trains

_BUILT = "after the model was loaded and all was cached, with TypeError: got an unexpected keyword argument '{name}'"
_TWICE = (
    "after the model was loaded and all was cached, with TypeError: got multiple values for keyword argument 'lr'"
)


@rule("KOH020", "error", "refused-argument-of-the-optimizer", trainers=TRAINERS)
@prevents("TypeError", r"(Adafactor|AdamW|Lion|Prodigy|DAdapt)\w*\.__init__\(\) got an unexpected keyword argument")
@prevents("TypeError", r"get_\w+_schedule(_with_\w+)?\(\) got an unexpected keyword argument")
def refused_argument_of_the_optimizer(config: Config, run: Run) -> Iterator[Finding]:
    """An argument that the optimizer or the schedule does not take.

    What: An entry of optimizer_args that is none of this optimizer's (scale_parameter for AdamW8bit, betas for
    Adafactor, which has beta1), lr among them, or an entry of lr_scheduler_args that is none of this schedule's
    (lr_end for constant_with_warmup). An argument that no optimizer known here has is a warning: another version may
    have it. Optimizers and schedules by module.Class are not judged.
    Why: They are handed on as they are to the constructor, after minutes of loading and caching. The arguments of
    one optimizer stay behind when another is chosen.
    Repair: Leave the entry out, or choose the optimizer that it is for.
    Upstream: sd-scripts library/train_util.py get_optimizer, get_scheduler_fix (48d368fa); musubi-tuner
    training/trainer_base.py (30c658c4)
    Signature: TypeError: Adafactor.__init__() got an unexpected keyword argument 'betas'
    """
    if not trains(run):
        raise NotApplicable
    yield from _of_the_optimizer(config, run)
    yield from _of_the_schedule(config, run)


def _of_the_optimizer(config: Config, run: Run) -> Iterator[Finding]:
    optimizer = run.setting("optimizer_type")
    if not isinstance(optimizer, str) or not optimizer:
        if left_to_the_command_line(config, run, "optimizer_type"):
            return
        optimizer = "AdamW8bit" if on(run, "use_8bit_adam") else "Lion" if on(run, "use_lion_optimizer") else "AdamW"
    name = optimizer.lower()
    taken = taken_by(name)
    if taken is None or (run.trainer == "musubi-tuner" and name not in OF_MUSUBI):
        return
    for entry in _names(run, "optimizer_args"):
        if entry == "lr":
            why = "{key} has lr, which the trainer gives by learning_rate."
            yield bad(run, "optimizer_args", why, _TWICE)
        elif entry not in taken:
            others = sorted(other for other, names in OPTIMIZERS.items() if entry in names)
            why = "{name} in {key} is no argument of {optimizer}"
            why += "; it is one of {others}." if others else ", which takes {taken}."
            likely = meant(entry, taken)
            severity: Severity | None = None if others or likely[0] else "warning"
            args: dict[str, Any] = {"name": entry, "optimizer": optimizer, "others": ", ".join(others[:4])}
            args["taken"] = ", ".join(sorted(taken))
            yield bad(run, "optimizer_args", why, _BUILT, severity=severity, **args)


def _of_the_schedule(config: Config, run: Run) -> Iterator[Finding]:
    schedule, optimizer = run.recipe.lr_scheduler.name, run.recipe.optimizer.name
    if left_to_the_command_line(config, run, "lr_scheduler", "lr_scheduler_type"):
        return
    taken = SCHEDULES.get(schedule)
    if taken is None or run.setting("lr_scheduler_type") or optimizer.endswith("schedulefree"):
        return
    for entry in _names(run, "lr_scheduler_args"):
        if entry not in taken | OF_EVERY_SCHEDULE:
            why = "{name} in {key} is no argument of the schedule {schedule}."
            others = sorted(other for other, names in SCHEDULES.items() if entry in names)
            if others:
                why = "{name} in {key} is no argument of the schedule {schedule}; it is one of {others}."
            args: dict[str, Any] = {"name": entry, "schedule": schedule, "others": ", ".join(others)}
            yield bad(run, "lr_scheduler_args", why, _BUILT, **args)


def _names(run: Run, option: str) -> Iterator[str]:
    listed = run.setting(option)
    for entry in listed if isinstance(listed, list) else ():
        if isinstance(entry, str) and "=" in entry and entry.partition("=")[0].isidentifier():
            yield entry.partition("=")[0]
