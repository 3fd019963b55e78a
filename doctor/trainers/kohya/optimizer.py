"""The optimizer and the learning rate of kohya's trainers in the runner's words."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from ...configs.refused import Reason, one_of
from ...configs.written import Written
from ...model import Run

# The optimizer of the same updates. Paged ones keep their state elsewhere.
OPTIMIZERS = {
    **dict.fromkeys(("adamw", "torch.optim.adamw", "pagedadamw", "pagedadamw32bit"), "adamw"),
    **dict.fromkeys(("adamw8bit", "pagedadamw8bit", "bitsandbytes.optim.adamw8bit"), "adamw8bit"),
    **dict.fromkeys(("lion8bit", "pagedlion8bit"), "lion8bit"),
    **{name: name for name in ("lion", "prodigy", "adafactor")},
}
# Those of packages that the trainers call by these names, too.
OF_PACKAGES = (
    *("adamwschedulefree", "radamschedulefree", "sgdschedulefree"),
    *("dadaptadam", "dadaptlion", "dadaptadagrad"),
)
# ai-toolkit's eps is larger than that of the packages.
WITH_EPS = ("adamw", "adamw8bit", "prodigy")
_SCHEDULES = ("constant", "constant_with_warmup", "linear", "cosine", "cosine_with_restarts", "polynomial")
_MIN_LR = "cosine_with_min_lr"
PROCESSES = "accelerate/num_processes"


def optimizer_of(run: Run, w: Written) -> str:
    if w.flag("use_8bit_adam"):
        return "adamw8bit"
    return "lion" if w.flag("use_lion_optimizer") else run.recipe.optimizer.name


def runners_name(run: Run, w: Written) -> str:
    """The optimizer by the runner's name for it, a class as module.Class; "" for what it does not have."""
    name, written = optimizer_of(run, w), w.text("optimizer_type")
    if "." in name and name not in OPTIMIZERS:
        return written
    return OPTIMIZERS.get(name, name if name in OF_PACKAGES else "")


def optimizer_settings(run: Run, w: Written) -> dict[str, Any]:
    """With the defaults of the packages where those of the runner are others. Raises ValueError, SyntaxError."""
    name = OPTIMIZERS.get(optimizer_of(run, w), "")
    written = {key: ast.literal_eval(value) for key, value in run.recipe.optimizer.settings.items()}
    given: dict[str, Any] = {"eps": 1e-8} if name in WITH_EPS else {}
    if name == "adafactor":
        given = {"scale_parameter": True}
    return {**given, **written}


def refused_rates(run: Run, w: Written) -> Iterator[Reason]:
    name = optimizer_of(run, w)
    if not runners_name(run, w):
        words = ", ".join((*dict.fromkeys(OPTIMIZERS.values()), *OF_PACKAGES))
        yield "optimizer", f"optimizer_type {name} is not supported; use {words}, or a class as module.Class"
    try:
        settings = optimizer_settings(run, w)
    except (ValueError, SyntaxError):
        yield "optimizer_settings", "The optimizer_args are no Python values"
        return
    if name == "adafactor" and settings.get("relative_step", True):
        told = "Adafactor finds its own rate where optimizer_args lack relative_step=False, which is not supported"
        yield "optimizer", told
    yield from _schedule(run, w)


def _schedule(run: Run, w: Written) -> Iterator[Reason]:
    schedule = run.recipe.lr_scheduler
    if of_type := w.text("lr_scheduler_type"):
        yield "lr_scheduler_type", f"lr_scheduler_type {of_type} is not supported"
    if schedule.settings or w.raw("lr_scheduler_args"):
        yield "scheduler_settings", "lr_scheduler_args are not supported"
    every = (*_SCHEDULES, _MIN_LR)
    known = every if w.number("lr_scheduler_num_cycles", default=1) == 1 else _SCHEDULES
    yield from one_of("scheduler", "lr_scheduler", schedule.name, known, ", ".join(every))
    if schedule.name == _MIN_LR and w.raw("lr_scheduler_min_lr_ratio") is None:
        yield "scheduler", f"lr_scheduler {_MIN_LR} needs lr_scheduler_min_lr_ratio"
    warmup = _warmup(w)
    if warmup is None:
        steps = w.raw("lr_warmup_steps")
        yield "lr_warmup_steps", f"lr_warmup_steps {steps} is neither a whole number nor a share below 1"
    elif warmup and schedule.name == "constant":
        yield "lr_warmup_steps", "lr_scheduler constant has no warm-up; write constant_with_warmup"


def rates_of(run: Run, w: Written) -> dict[str, Any]:
    """The optimizer and the LR scheduler, with their settings."""
    recipe, schedule = run.recipe, run.recipe.lr_scheduler.name
    warmup = _warmup(w) or 0
    if warmup >= 1:  # accelerate advances the schedule once for each process
        warmup = max(1, warmup / w.raw(PROCESSES, default=1))
    settings: dict[str, Any] = {"num_warmup_steps": warmup} if schedule != "constant" else {}
    if schedule == "cosine_with_restarts":
        settings["num_cycles"] = w.whole("lr_scheduler_num_cycles", default=1)
    if schedule == "polynomial":
        settings["power"] = w.number("lr_scheduler_power", default=1.0)
        whole = w.number("learning_rate", default=2e-6)
        if recipe.learning_rate != whole > 0:  # it ends at a share of unet_lr that learning_rate says
            settings["lr_end"] = 1e-7 * recipe.learning_rate / whole
    if schedule == _MIN_LR:
        settings["eta_min"] = recipe.learning_rate * w.number("lr_scheduler_min_lr_ratio")
    name = runners_name(run, w)
    if name.lower().endswith("schedulefree"):  # both trainers then leave the rate as it is
        schedule, settings = "constant", {}
    return {
        "optimizer": name or optimizer_of(run, w),
        "optimizer_settings": optimizer_settings(run, w),
        "scheduler": "cosine" if schedule == _MIN_LR else schedule,
        "scheduler_settings": settings,
    }


def _warmup(w: Written) -> float | None:
    """Steps, or a share of them below 1; None for what is neither, of which the trainer makes far too many."""
    value = w.raw("lr_warmup_steps")
    if value is None:
        return 0
    if isinstance(value, str):
        share = value.endswith("%")
        try:
            number = float(value.removesuffix("%")) / (100 if share else 1)
        except ValueError:
            return None
        whole = number.is_integer() and number > 0 and not share
        return number if 0 <= number < 1 else int(number) if whole else None
    if isinstance(value, float):
        return value if 0 <= value < 1 else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
