"""What the optimizer and the schedule that kohya's trainers build take of optimizer_args and lr_scheduler_args."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...doctor.model import Config, Finding, Run, Severity
from ...doctor.rules import NotApplicable, prevents, rule
from ..keys.misspelled import meant, words
from ..keys.values import bad
from . import TRAINERS, left_to_the_command_line, on, trains

_BUILT = "after the model was loaded and all was cached, with TypeError: got an unexpected keyword argument '{name}'"
_TWICE = (
    "after the model was loaded and all was cached, with TypeError: got multiple values for keyword argument 'lr'"
)
_ADAM = frozenset(("betas", "eps", "weight_decay", "amsgrad"))
_BNB = words("args min_8bit_size percentile_clipping block_wise")  # bitsandbytes 0.41 to 0.50
_DADAPT = words("weight_decay log_every d0 growth_rate fsdp_in_use")
_FREE = words("weight_decay r weight_lr_power foreach")
# What the constructors take, of several versions, beside the parameters and lr, which the trainers give themselves.
OPTIMIZERS: Mapping[str, frozenset[str]] = {
    "adamw": _ADAM | {"maximize", "foreach", "capturable", "differentiable", "fused"},
    **dict.fromkeys(("adamw8bit", "pagedadamw", "pagedadamw8bit", "pagedadamw32bit"), _ADAM | _BNB | {"optim_bits"}),
    **dict.fromkeys(("lion8bit", "pagedlion8bit"), _BNB | words("betas weight_decay")),
    "sgdnesterov8bit": _BNB | {"momentum", "dampening", "weight_decay"},
    "sgdnesterov": words("momentum dampening weight_decay maximize foreach differentiable fused"),
    "lion": words("betas weight_decay use_triton decoupled_weight_decay cautious_factor"),
    "adafactor": words("eps clip_threshold decay_rate beta1 weight_decay scale_parameter relative_step warmup_init"),
    "prodigy": words(
        "betas beta3 eps weight_decay decouple use_bias_correction safeguard_warmup d0 d_coef growth_rate "
        "fsdp_in_use slice_p"
    ),
    "dadaptadam": _DADAPT | {"betas", "eps", "decouple", "use_bias_correction"},
    **dict.fromkeys(("dadaptation", "dadaptadampreprint"), _DADAPT | {"betas", "eps", "decouple"}),
    "dadaptadagrad": _DADAPT | {"momentum", "eps"},
    "dadaptsgd": _DADAPT | words("momentum"),
    "dadaptlion": _DADAPT | words("betas"),
    **dict.fromkeys(("dadaptadan", "dadaptadanip"), _DADAPT | {"betas", "eps", "no_prox"}),
    "adamwschedulefree": _FREE | {"betas", "eps", "warmup_steps"},
    "radamschedulefree": _FREE | {"betas", "eps", "silent_sgd_phase"},
    "sgdschedulefree": _FREE | words("momentum warmup_steps"),
}
_PAGED_ALREADY = {name: OPTIMIZERS[name] | {"is_paged"} for name in ("adamw8bit", "lion8bit")}
# cases of its own; what the other has none for is a class of torch.optim, letter by letter
_OF_MUSUBI = frozenset(("adamw", "adamw8bit", "adafactor"))
# what the functions of transformers take beside what the trainers give them by options of their own
SCHEDULES: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(
        ("constant", "constant_with_warmup", "inverse_sqrt", "linear", "cosine_with_restarts"), frozenset()
    ),
    "cosine": words("num_cycles"),
    "polynomial": words("lr_end"),
    "cosine_with_min_lr": words("min_lr"),
    "warmup_stable_decay": words("warmup_type decay_type"),
}
_BEFORE = words("last_epoch")  # of every schedule
# of networks/lora.py of both trainers, and of lycoris.kohya
_OF_NETWORKS = words(
    "algo preset conv_dim conv_alpha block_dims block_alphas conv_block_dims conv_block_alphas rank_dropout "
    "module_dropout loraplus_lr_ratio loraplus_unet_lr_ratio loraplus_text_encoder_lr_ratio dora_wd"
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


def entry_of(name: str) -> str:
    """The option whose entries have this name, "" where none has."""
    if name not in ("args", "r") and any(name in taken for taken in OPTIMIZERS.values()):
        return "optimizer_args"
    return "network_args" if name in _OF_NETWORKS else ""


def _of_the_optimizer(config: Config, run: Run) -> Iterator[Finding]:
    optimizer = run.setting("optimizer_type")
    if not isinstance(optimizer, str) or not optimizer:
        if left_to_the_command_line(config, run, "optimizer_type"):
            return
        optimizer = "AdamW8bit" if on(run, "use_8bit_adam") else "Lion" if on(run, "use_lion_optimizer") else "AdamW"
    name = optimizer.lower()
    taken = _PAGED_ALREADY.get(name, OPTIMIZERS.get(name))
    if taken is None or (run.trainer == "musubi-tuner" and name not in _OF_MUSUBI):
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
        if entry not in taken | _BEFORE:
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
