"""EMA is the moving average of the trained weights. Pure, and free of torch."""

from __future__ import annotations

from ...model.run import Run

# How SimpleTuner's configs are followed: {"interval": every so many updates, "warmup": updates without an average}.
RAMP = "train/ema_ramp"


def ema_decay_at(run: Run, updates: int) -> float | None:
    """Returns the share of the average that stays after so many updates (from 1); None where it is left as it is.

    Always ema_decay, as in ai-toolkit, or as SimpleTuner has it (training/ema.py of bc8e6ab7): the weights themselves
    as long as its warm-up lasts, then ema_decay; without a warm-up the share rises to it, from 0, 2/11, 3/12, ….
    """
    recipe = run.recipe
    ramp = run.setting(RAMP)
    if not isinstance(ramp, dict):
        return recipe.ema.decay
    if updates % int(ramp["interval"]):
        return None
    if ramp["warmup"] > 0:
        return 0.0 if updates < ramp["warmup"] else recipe.ema.decay
    return min(updates / (9 + updates), recipe.ema.decay) if updates > 1 else 0.0
