"""EMA is the moving average of the trained weights. Pure, and free of torch."""

from __future__ import annotations

from ...model.run import Run


def ema_decay_at(run: Run, updates: int) -> float | None:
    """Returns the share of the average that stays after so many updates (from 1); None where it is left as it is.

    Always ema_decay, as in ai-toolkit, or as SimpleTuner has it (training/ema.py of bc8e6ab7): the weights themselves
    as long as its warm-up lasts, then ema_decay; without a warm-up the share rises to it, from 0, 2/11, 3/12, ….
    """
    ema = run.recipe.ema
    if ema.warmup is None:
        return ema.decay
    if updates % ema.interval:
        return None
    if ema.warmup > 0:
        return 0.0 if updates < ema.warmup else ema.decay
    return min(updates / (9 + updates), ema.decay) if updates > 1 else 0.0
