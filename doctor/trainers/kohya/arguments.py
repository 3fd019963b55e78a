"""What the optimizers, schedules and networks of kohya's trainers take as entries of optimizer_args and the like."""

from __future__ import annotations

from collections.abc import Mapping

from ...configs.words import words

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
OF_MUSUBI = frozenset(("adamw", "adamw8bit", "adafactor"))
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
OF_EVERY_SCHEDULE = words("last_epoch")
# of networks/lora.py of both trainers, and of lycoris.kohya
_OF_NETWORKS = words(
    "algo preset conv_dim conv_alpha block_dims block_alphas conv_block_dims conv_block_alphas rank_dropout "
    "module_dropout loraplus_lr_ratio loraplus_unet_lr_ratio loraplus_text_encoder_lr_ratio dora_wd"
)


def taken_by(optimizer: str) -> frozenset[str] | None:
    """What the constructor of an optimizer takes, by its name in lower case; None of one that is not known."""
    return _PAGED_ALREADY.get(optimizer, OPTIMIZERS.get(optimizer))


def list_of(name: str) -> str:
    """The option that is a list of NAME=VALUE and takes this name, "" where none does."""
    if name not in ("args", "r") and any(name in taken for taken in OPTIMIZERS.values()):
        return "optimizer_args"
    return "network_args" if name in _OF_NETWORKS else ""
