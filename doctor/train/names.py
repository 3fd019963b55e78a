"""The words the runner understands in a config, and what they stand for. Free of torch, so a check can be quick."""

from __future__ import annotations

# Computation types by the names trainers use.
DTYPES: dict[str, str] = {
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "fp32": "float32",
    "float": "float32",
    "single": "float32",
    "float32": "float32",
}
SAVE_DTYPES: dict[str, str] = {**DTYPES, "fp16": "float16", "half": "float16", "float16": "float16"}

# Storage of the frozen weights by the names trainers use.
KINDS: dict[str | None, str] = {
    None: "none",
    "none": "none",
    "int8": "int8",
    "qint8": "int8",
    "float8": "float8",
    "qfloat8": "float8",
    "qfloat8_e4m3fn": "float8",
}

OPTIMIZERS = ("adamw", "adam", "adamw8bit", "adam8bit")
OPTIMIZER_SETTINGS = ("weight_decay", "betas", "eps")
SCHEDULERS: dict[str, tuple[str, ...]] = {
    "constant": ("factor", "total_iters"),
    "constant_with_warmup": ("num_warmup_steps",),
    "linear": ("total_iters", "start_factor", "end_factor"),
    "cosine": ("total_iters", "eta_min"),
    "cosine_with_restarts": ("total_iters", "eta_min"),
}
SCHEMES = ("sigmoid", "linear", "weighted", "shift")
FAVOURS = ("balanced", "content", "style")
LOSSES = ("mse", "mae")
