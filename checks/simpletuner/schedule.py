"""Schedules of SimpleTuner that are not what their names say."""

from __future__ import annotations

from collections.abc import Iterator
from math import cos, pi

from ...doctor.model import Finding, Run, found
from ...doctor.rules import rule
from .options import TRAINER, number, text

_HALF_PERIOD = 1000  # of cosine without lr_warmup_steps


@rule("SIM011", "note", "learning-rate-that-swings", trainers=TRAINER)
def learning_rate_that_swings(run: Run) -> Iterator[Finding]:
    """A cosine schedule that does not end with the run.

    What: lr_scheduler is cosine, and lr_warmup_steps (1000 where it is not written) is not max_train_steps; or it is
    cosine_with_restarts.
    Why: SimpleTuner has its own cosine. It begins at the learning rate without a warm-up, falls to lr_end in
    lr_warmup_steps steps, rises again in as many, and so on. With a short warm-up the rate swings all through the
    run; with none it has not come down when a run of a few hundred steps ends. cosine_with_restarts stays at the
    learning rate.
    Repair: lr_scheduler: polynomial, which has the warm-up and falls to lr_end at the last step, or as many
    lr_warmup_steps as max_train_steps.
    Upstream: SimpleTuner simpletuner/helpers/training/custom_schedule.py get_lr_scheduler, Cosine (bc8e6ab7)
    Signature: Cosine learning rate expects to use warmup steps as its interval
    """
    name, steps = text(run, "lr_scheduler"), run.recipe.steps
    if name == "cosine_with_restarts":
        yield found(
            run.where("scheduler"),
            "lr_scheduler is cosine_with_restarts, which in SimpleTuner stays at the learning rate. The schedule "
            "polynomial falls to lr_end.",
            otherwise="Every step has the whole learning rate.",
            evidence={"value": name},
        )
    if name != "cosine" or steps < 1:
        return
    written = int(number(run, "lr_warmup_steps"))
    half = written if written > 0 else _HALF_PERIOD
    if half == steps:
        return
    rate, end = run.recipe.learning_rate, number(run, "lr_end", 4e-7)
    last = end + (rate - end) * (1 + cos(pi * (steps - 1) / half)) / 2
    yield found(
        run.where("scheduler"),
        "lr_scheduler is cosine: SimpleTuner's falls from learning_rate to lr_end in {half} steps (lr_warmup_steps) "
        "and rises again. The schedule polynomial falls to the end of the run."
        if half < steps
        else "lr_scheduler is cosine: SimpleTuner's falls to lr_end in {half} steps (lr_warmup_steps, or 1000), and "
        "the run has {steps}. The schedule polynomial falls to the end of the run.",
        otherwise="The last of {steps} steps has a rate of {last:.2g} (computed), of {rate:.2g} at the first.",
        evidence={"half_period": half, "last": last},
        half=half,
        steps=steps,
        rate=rate,
    )
