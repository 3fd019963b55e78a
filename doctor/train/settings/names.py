"""The words the runner understands in a config, and what they stand for. Free of torch, so a check can be quick."""

from __future__ import annotations

from ...memory.bytes import DTYPES as DTYPES
from ...memory.bytes import KINDS as KINDS

FREE = ("AdamW", "RAdam", "SGD")
_ADAM = ("weight_decay", "betas", "eps")
# The settings that each optimizer takes.
OPTIMIZERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("adamw", "adam", "adamw8bit", "adam8bit"), _ADAM),
    "adafactor": (
        *("weight_decay", "beta1", "eps", "clip_threshold", "decay_rate"),
        *("scale_parameter", "relative_step", "warmup_init"),
    ),
    "lion": ("weight_decay", "betas"),
    "lion8bit": ("weight_decay", "betas"),
    "prodigy": (
        *_ADAM,
        *("beta3", "decouple", "use_bias_correction", "safeguard_warmup", "d0", "d_coef", "growth_rate", "slice_p"),
    ),
    "adagrad": ("weight_decay", "lr_decay", "eps", "initial_accumulator_value"),
}
_STEP = f"{__name__.removesuffix('.settings.names')}.step"
_OWN = f"{_STEP}.ai_toolkit_optimizers"
# Optimizers from packages, or of our own: the class, and what pip calls the package. Those that are not above take
# what their class takes, as does any class that a config names itself ("module.Class").
CLASSES: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("lion", "lion8bit"), ("lion_pytorch.Lion", "lion-pytorch")),
    "prodigy": ("prodigyopt.Prodigy", "prodigyopt"),
    **{f"{name.lower()}schedulefree": (f"schedulefree.{name}ScheduleFree", "schedulefree") for name in FREE},
    "prodigyplus": ("prodigyplus.ProdigyPlusScheduleFree", "prodigy-plus-schedule-free"),
    "came": ("came_pytorch.CAME", "came-pytorch"),
    **{f"dadapt{name.lower()}": (f"dadaptation.DAdapt{name}", "dadaptation") for name in ("Adam", "Lion", "AdaGrad")},
    "adopt": ("pytorch_optimizer.ADOPT", "pytorch-optimizer"),
    **{name.lower(): (f"{_OWN}.{name}", "") for name in ("Automagic", "Automagic2", "Automagic3")},
    **dict.fromkeys(("adam8", "adamw8"), (f"{_OWN}.Adam8", "")),
    "prodigy8bit": (f"{_STEP}.prodigy8bit.Prodigy8bit", ""),
}

# These find the learning rate themselves, and stop at the first step where parts of the network have several.
ONE_RATE = ("prodigy", "prodigy8bit", "dadaptadam", "dadaptlion")


def class_path(name: str) -> str:
    """The class of an optimizer from a package, "" for one of torch's, transformers' or bitsandbytes'."""
    return name if "." in name else CLASSES.get(name, ("", ""))[0]


# ai-toolkit clips no gradients for these, which bound their updates themselves; the last two, because they make them
# amid the backward pass, unless their setting `fused` is false.
UNCLIPPED = ("adafactor", "automagic2", "automagic3")
# How gradients are clipped where the config says it: by their norm, whatever the optimizer, or value by value.
CLIPS = ("norm", "value")
# The settings that each schedule takes, all of them numbers.
SCHEDULERS: dict[str, tuple[str, ...]] = {
    "constant": ("factor", "total_iters"),
    "constant_with_warmup": ("num_warmup_steps",),
    "linear": ("total_iters", "start_factor", "end_factor", "num_warmup_steps"),
    "cosine": ("total_iters", "eta_min", "num_warmup_steps"),
    "cosine_with_restarts": ("total_iters", "eta_min", "T_mult", "num_warmup_steps", "num_cycles"),
    "step": ("step_size", "gamma"),
    "polynomial": ("total_iters", "num_warmup_steps", "lr_end", "power"),
}
# SimpleTuner's own, which swing between the learning rate and lr_end: what its configs are put into.
WAVES: dict[str, tuple[str, ...]] = dict.fromkeys(
    ("simpletuner-cosine", "simpletuner-sine"), ("half_period", "lr_end")
)
# Settings of schedules that divide or count: whole numbers above 0.
COUNTS = ("total_iters", "step_size", "T_mult", "num_cycles", "half_period")
# One name each for Flux and Lumina 2 in ai-toolkit, where all three do what the model's scheduler says.
SHIFTS = ("shift", "flux_shift", "lumina2_shift")
SCHEMES = (
    *("sigmoid", "linear", "weighted", *SHIFTS, "lognorm_blend"),
    *("one_step", "two_step", "four_step", "eight_step"),
)
FAVOURS = ("balanced", "content", "style")
LOSSES = ("mse", "mae", "pseudo_huber", "huber", "smooth_l1")

# The folder in the output folder for what is made once: latents, embeddings, masks.
CACHE = ".cache"
