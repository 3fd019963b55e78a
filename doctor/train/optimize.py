"""The optimizer and the learning rate by step."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn

from .names import OPTIMIZER_SETTINGS

EIGHT_BIT = ("adamw8bit", "adam8bit")
WARMUP = 1000
EPS = 1e-6


def make_optimizer(
    name: str,
    settings: Mapping[str, Any],
    rate: float,
    parameters: Iterable[nn.Parameter],
    device: torch.device,
    note: Callable[[str], None],
) -> torch.optim.Optimizer:
    """Adam or AdamW, eps 1e-6 unless set. Eight-bit kinds need bitsandbytes on CUDA; else plain, said by `note`."""
    keywords = {"lr": rate, "eps": EPS, **{key: settings[key] for key in settings if key in OPTIMIZER_SETTINGS}}
    if "betas" in keywords:
        keywords["betas"] = tuple(keywords["betas"])
    if name in EIGHT_BIT:
        broken = ""
        plain = "AdamW" if name == "adamw8bit" else "Adam"
        if device.type == "cuda" and importlib.util.find_spec("bitsandbytes") is not None:
            try:
                import bitsandbytes  # type: ignore[import-not-found]

                make: Any = getattr(bitsandbytes.optim, f"{plain}8bit")
                eight_bit: torch.optim.Optimizer = make(list(parameters), **keywords)
                return eight_bit
            except (ImportError, OSError, RuntimeError, AttributeError) as error:
                broken = f"it does not work here ({error})"
        why = (
            "it is not installed here"
            if device.type == "cuda"
            else f"that needs CUDA, but this runs on the {device.type}"
        )
        note(
            f"{name} needs bitsandbytes, and {broken or why}. Plain {plain} is used with the same learning rate, eps "
            "and weight decay: the same updates without the 8-bit rounding, 6 more bytes per trained weight."
        )
        name = plain.lower()
    if name == "adamw":
        return torch.optim.AdamW(list(parameters), **keywords)
    return torch.optim.Adam(list(parameters), **keywords)


def rate_factor(name: str, settings: Mapping[str, Any], rate: float, step: int, total: int) -> float:
    """What the learning rate is multiplied by at `step` (from 0) of `total`.

    constant; constant_with_warmup rises over num_warmup_steps (1000); linear falls to zero; cosine falls to eta_min,
    cosine_with_restarts does the same and starts again after total_iters.
    """
    if name == "constant_with_warmup":
        warmup = int(settings.get("num_warmup_steps", WARMUP))
        return min(1.0, (step + 1) / max(1, warmup))
    if name == "linear":
        return max(0.0, 1.0 - step / max(1, total))
    if name in ("cosine", "cosine_with_restarts"):
        period = max(1, int(settings.get("total_iters", total)))
        place = step % period if name == "cosine_with_restarts" else min(step, period)
        floor = float(settings.get("eta_min", 0.0)) / rate if rate else 0.0
        return floor + (1.0 - floor) * 0.5 * (1.0 + math.cos(math.pi * place / period))
    return 1.0
