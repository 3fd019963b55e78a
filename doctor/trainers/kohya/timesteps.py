"""The noise levels, guidance and loss of kohya's trainers in the runner's words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...configs.refused import Reason, one_of
from ...configs.written import Written
from ...families import family_of
from ...families.part_files import kohya_of
from ...model import Run
from ...model.objective import TimestepDensity
from ...model.record import replace

# Two numbers of 2 x 2 cells, each with the mu of its shift.
BY_SIZE = {
    "flux_shift": (256.0, 0.5, 4096.0, 1.15),
    "qwen_shift": (256.0, 0.5, 8192.0, 0.9),
    "krea2_shift": (256.0, 0.5, 6400.0, 1.15),
    "flux2_shift": (64.0, 0.5, 1024.0, 1.15),
}
# What counts cells of the latents of models that have them in cells already, as they are.
_OF_CELLS = {"flux2_shift": (256.0, 0.5, 4096.0, 1.15)}
_SAMPLINGS = ("sigma", "uniform", "sigmoid", "shift", "logsnr", *BY_SIZE)
_LOSSES = {"l2": "mse", "l1": "mae", "huber": "huber", "smooth_l1": "smooth_l1"}
_HUBER = ("huber", "smooth_l1")


# What the scripts of Stable Diffusion look at, and the runner does not have.
_LACKING = (
    *("adaptive_noise_scale", "debiased_estimation_loss", "ip_noise_gamma", "multires_noise_iterations"),
    *("noise_offset_random_strength", "scale_v_pred_loss_like_noise_pred", "v2", "v_pred_like_loss"),
    "weighted_captions",
)
_TOKENS = 75


def _refused_loss(w: Written) -> Iterator[Reason]:
    loss = w.text("loss_type", default="l2")
    yield from one_of("loss_type", "loss_type", loss, _LOSSES, " or ".join(_LOSSES))
    schedule, known = w.text("huber_schedule", default="snr"), ("constant", "exponential")
    if loss in _HUBER:  # sd-scripts stops on snr, its default, for a model of flow matching
        at = "huber_schedule" if w.has("huber_schedule") else "loss_type"
        yield from one_of(at, "huber_schedule", schedule, known, " or ".join(known))
        if not w.number("huber_c", default=0.1) > 0:
            yield "huber_c", "huber_c must be a number above 0"


def _refused_of_diffusion(run: Run, w: Written) -> Iterator[Reason]:
    for name in _LACKING:
        if w.raw(name):
            yield name, f"{name} is not supported; sd-scripts has it"
    if w.whole("max_token_length", default=_TOKENS) != _TOKENS:
        yield "max_token_length", f"Another max_token_length than {_TOKENS} is not supported; sd-scripts has it"
    yield from _refused_loss(w)
    low, high = w.whole("min_timestep"), w.whole("max_timestep", default=1000)
    if not 0 <= low < high <= 1000:
        yield "min_timestep", "min_timestep and max_timestep must be from 0 to 1000, the smaller one first"


def refused_noise(run: Run, w: Written) -> Iterator[Reason]:
    if family_of(run.recipe.architecture).diffuses:
        yield from _refused_of_diffusion(run, w)
        return
    sampling = run.recipe.timestep_sampling.type
    known = [name for name in _SAMPLINGS if name not in BY_SIZE or name in _by_size(run)]
    yield from one_of("timestep_type", "timestep_sampling", sampling, known, ", ".join(known))
    if run.trainer == "sd-scripts":
        kind = w.text("model_prediction_type", default="sigma_scaled")
        if kind != "raw":
            default = "" if w.raw("model_prediction_type") is not None else ", which is the default,"
            yield (
                "model_prediction_type",
                f"model_prediction_type {kind}{default} compares a guess of the picture with the way to it, which "
                "trains noise; write raw",
            )
        yield from _refused_loss(w)
    elif w.text("weighting_scheme", default="none") in ("sigma_sqrt", "cosmap"):
        yield "weighting_scheme", f"weighting_scheme {w.text('weighting_scheme', default='')} is not supported"
    low, high = _range(run, w)
    if not 0 <= low <= high <= 1:
        yield "min_timestep", "min_timestep and max_timestep must be from 0 to 1000, the smaller one first"


def noise_of(run: Run, w: Written) -> dict[str, Any]:
    """The fields of the timestep sampling and of the loss."""
    of_diffusion: dict[str, Any] = {}
    if family_of(run.recipe.architecture).diffuses:
        of_diffusion = {
            "loss.min_snr_gamma": w.number("min_snr_gamma"),
            "loss.noise_offset": w.number("noise_offset"),
            "loss.prediction": "v_prediction" * w.flag("v_parameterization"),
            "loss.zero_terminal_snr": w.flag("zero_terminal_snr"),
        }
    return {
        **of_diffusion,
        "timestep_type": "drawn",
        "timestep_sampling.density": _density(run, w),
        "loss_type": _LOSSES.get(w.text("loss_type", default="l2"), run.recipe.loss.type),
        "loss.threshold": w.number("huber_c", default=0.1),
        "loss.threshold_schedule": w.text("huber_schedule", default="constant"),
        "loss.threshold_scale": w.number("huber_scale", default=1.0),
        "loss.regularisation_weight": w.number("prior_loss_weight", default=1.0),
        # musubi-tuner has 1 for Kontext, whatever is written
        "loss.embedded_guidance": w.number("guidance_scale", default=3.5) if run.trainer == "sd-scripts" else 1.0,
        "loss.balanced_masks": False,
    }


def _density(run: Run, w: Written) -> TimestepDensity:
    """How noise levels are drawn."""
    if family_of(run.recipe.architecture).diffuses:  # of the whole timesteps, each alike
        low, high = w.number("min_timestep"), w.number("max_timestep", default=1000.0)
        return TimestepDensity(low=low / 1000, high=high / 1000)
    sampling = run.recipe.timestep_sampling.type
    low, high = _range(run, w)
    cut = w.flag("preserve_distribution_shape") and sampling != "sigma"
    even = TimestepDensity(low=low, high=high, cut=cut)
    if sampling == "uniform":
        return even
    if sampling == "sigma":
        # musubi-tuner's table of times is even: its scheduler shifts samples only
        even = replace(even, stepped=True, shift=_shift(run, w) if run.trainer == "sd-scripts" else 1.0)
        density = w.text("weighting_scheme", default="none")
        if density == "mode":
            return replace(even, density=density, mode=w.number("mode_scale", default=1.29))
        if density != "logit_normal":
            return even
        spread = w.number("logit_std", default=1.0)
        return replace(even, density=density, mean=w.number("logit_mean"), spread=spread)
    normal = replace(even, density="logit_normal")
    if sampling == "logsnr":
        return replace(normal, mean=-w.number("logit_mean") / 2, spread=w.number("logit_std", default=1.0) / 2)
    shift = 1.0 if sampling == "sigmoid" else _by_size(run).get(sampling, _shift(run, w))
    return replace(normal, spread=w.number("sigmoid_scale", default=1.0), shift=shift)


def _by_size(run: Run) -> Mapping[str, tuple[float, float, float, float]]:
    of_trainer = kohya_of(run)
    return _OF_CELLS if of_trainer is not None and of_trainer.in_cells else BY_SIZE


def _shift(run: Run, w: Written) -> float:
    return w.number("discrete_flow_shift", default=3.0 if run.trainer == "sd-scripts" else 1.0)


def _range(run: Run, w: Written) -> tuple[float, float]:
    """From min_timestep to max_timestep; sd-scripts does not look at them for Flux."""
    if run.trainer == "sd-scripts":
        return 0.0, 1.0
    return w.number("min_timestep") / 1000, w.number("max_timestep", default=1000.0) / 1000
