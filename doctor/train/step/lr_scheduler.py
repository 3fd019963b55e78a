"""The LR scheduler tells the learning rate by step. Pure, and free of torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..settings.names import WAVES

WARMUP = 1000


def lr_factor(name: str, settings: Mapping[str, Any], rate: float, step: float, total: int) -> float:
    """Returns what the learning rate is multiplied by at `step` (from 0) of `total`.

    As torch (constant, linear with a factor written, cosine, cosine_with_restarts, step) and diffusers
    (constant_with_warmup, polynomial, and what has a warm-up or num_cycles) define them, total_iters being the whole
    run unless written. Linear without factors falls to zero; cosine stays at eta_min when it has arrived there. A
    warm-up below 1 is a share of the run, as in kohya's trainers; one above need not be whole. SimpleTuner's own
    (custom_schedule.py of bc8e6ab7) fall to lr_end in half_period steps, rise again, and so on; its rates are whole
    billionths.
    """
    if name in WAVES:
        turn = math.pi * step / int(settings["half_period"])
        wave = math.cos(turn) if name == "simpletuner-cosine" else math.sin(turn)
        end = float(settings["lr_end"])
        return math.floor((end + (rate - end) * (1.0 + wave) / 2) * 1e9) / 1e9 / rate
    written = settings.get("num_warmup_steps", 0)
    if 0 < written < 1:
        settings = {**settings, "num_warmup_steps": int(written * total)}
    span: float = max(1, int(settings.get("total_iters", total)))
    if name == "constant":
        return float(settings.get("factor", 1.0)) if step < span else 1.0
    if name == "constant_with_warmup":
        warmup = float(settings.get("num_warmup_steps", WARMUP))
        return min(1.0, step / warmup) if warmup > 0 else 1.0
    warmup = float(settings.get("num_warmup_steps", 0))
    if step < warmup:
        return step / warmup
    step, span = step - warmup, max(1, span - warmup)
    if name == "linear":
        if "start_factor" not in settings and "end_factor" not in settings:
            return max(0.0, 1.0 - step / span)
        start = float(settings.get("start_factor", 1.0 / 3))
        end = float(settings.get("end_factor", 1.0))
        return start + (end - start) * min(step, span) / span
    if name == "cosine_with_restarts" and "num_cycles" in settings:
        place = step / span * int(settings["num_cycles"])
        return 0.5 * (1.0 + math.cos(math.pi * (place % 1.0))) if step < span else 0.0
    if name in ("cosine", "cosine_with_restarts"):
        floor = float(settings.get("eta_min", 0.0)) / rate
        if name == "cosine_with_restarts":
            while step >= span:
                step -= span
                span *= int(settings.get("T_mult", 1))
        return floor + (1.0 - floor) * 0.5 * (1.0 + math.cos(math.pi * min(step, span) / span))
    if name == "step":
        return float(float(settings.get("gamma", 0.1)) ** (step // int(settings["step_size"])))
    if name == "polynomial":
        end = float(settings.get("lr_end", 1e-7)) / rate
        left = max(0.0, 1.0 - step / span)
        return float(end + (1.0 - end) * left ** float(settings.get("power", 1.0)))
    raise ValueError(name)
