"""The noise levels, guidance and loss of kohya's trainers in the runner's words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...model import Run
from ...model.recipe import TimestepDensity
from .optimizer import Reason
from .starts import Options

# Two numbers of 2 x 2 cells, each with the mu of its shift.
BY_SIZE = {
    "flux_shift": (256.0, 0.5, 4096.0, 1.15),
    "qwen_shift": (256.0, 0.5, 8192.0, 0.9),
    "krea2_shift": (256.0, 0.5, 6400.0, 1.15),
    "flux2_shift": (64.0, 0.5, 1024.0, 1.15),
}
_SAMPLINGS = ("sigma", "uniform", "sigmoid", "shift", "logsnr", *BY_SIZE)
_LOSSES = {"l2": "mse", "l1": "mae"}


def refused_noise(run: Run) -> Iterator[Reason]:
    w = Options(run.settings)
    if run.recipe.timestep_sampling.type not in _SAMPLINGS:
        yield (
            "timestep_type",
            f"timestep_sampling {run.recipe.timestep_sampling.type} is not supported; use {', '.join(_SAMPLINGS)}",
        )
    if run.trainer == "sd-scripts":
        kind = w.text("sigma_scaled", "model_prediction_type")
        if kind != "raw":
            default = "" if w.raw("model_prediction_type") is not None else ", which is the default,"
            yield (
                "model_prediction_type",
                f"model_prediction_type {kind}{default} compares a guess of the picture with the way to it, which "
                "trains noise; write raw",
            )
        loss = w.text("l2", "loss_type")
        if loss not in _LOSSES:
            yield "loss_type", f"loss_type {loss} is not supported; use {' or '.join(_LOSSES)}"
    elif w.text("none", "weighting_scheme") in ("sigma_sqrt", "cosmap"):
        yield "weighting_scheme", f"weighting_scheme {w.text('', 'weighting_scheme')} is not supported"
    low, high = _range(run)
    if not 0 <= low <= high <= 1:
        yield "min_timestep", "min_timestep and max_timestep must be from 0 to 1000, the smaller one first"


def loss_of(run: Run) -> str:
    return _LOSSES.get(Options(run.settings).text("l2", "loss_type"), run.recipe.loss.type)


def density_of(run: Run) -> TimestepDensity:
    """How noise levels are drawn."""
    w = Options(run.settings)
    sampling = run.recipe.timestep_sampling.type
    low, high = _range(run)
    made: dict[str, Any] = {"low": low, "high": high}
    if w.flag("preserve_distribution_shape") and sampling != "sigma":
        made["cut"] = True
    if sampling == "uniform":
        return TimestepDensity(**made)
    if sampling == "sigma":
        density = w.text("none", "weighting_scheme")
        # musubi-tuner's table of times is even: its scheduler shifts samples only
        made |= {"stepped": True, "shift": _shift(run) if run.trainer == "sd-scripts" else 1.0}
        if density == "logit_normal":
            made |= {"density": density, "mean": w.number(0.0, "logit_mean"), "spread": w.number(1.0, "logit_std")}
        elif density == "mode":
            made |= {"density": density, "mode": w.number(1.29, "mode_scale")}
        return TimestepDensity(**made)
    made["density"] = "logit_normal"
    if sampling == "logsnr":
        made |= {"mean": -w.number(0.0, "logit_mean") / 2, "spread": w.number(1.0, "logit_std") / 2}
        return TimestepDensity(**made)
    made["spread"] = w.number(1.0, "sigmoid_scale")
    if sampling != "sigmoid":
        made["shift"] = BY_SIZE.get(sampling, _shift(run))
    return TimestepDensity(**made)


def _shift(run: Run) -> float:
    return Options(run.settings).number(3.0 if run.trainer == "sd-scripts" else 1.0, "discrete_flow_shift")


def _range(run: Run) -> tuple[float, float]:
    """From min_timestep to max_timestep; sd-scripts does not look at them for Flux."""
    w = Options(run.settings)
    if run.trainer == "sd-scripts":
        return 0.0, 1.0
    return w.number(0.0, "min_timestep") / 1000, w.number(1000.0, "max_timestep") / 1000


def embedded_guidance(run: Run) -> float:
    """What the model is told; musubi-tuner has 1 for Kontext, whatever is written."""
    return Options(run.settings).number(3.5, "guidance_scale") if run.trainer == "sd-scripts" else 1.0
