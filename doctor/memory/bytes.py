"""Bytes per number: of dtypes, of quantized weights, of optimizers."""

from __future__ import annotations

import re

# Types of numbers by the names trainers use.
DTYPES: dict[str, str] = {
    **dict.fromkeys(("bf16", "bfloat16"), "bfloat16"),
    **dict.fromkeys(("fp32", "float", "single", "float32"), "float32"),
    **dict.fromkeys(("fp16", "half", "float16"), "float16"),
}
WIDTHS = {
    **{name: 4 if dtype == "float32" else 2 for name, dtype in DTYPES.items()},
    **dict.fromkeys(("8bit", "e4m3fn", "float8"), 1),
}
# What zdoctor's own runner stores the frozen weights as, by the names of trainers.
KINDS: dict[str | None, str] = {
    **dict.fromkeys((None, "none"), "none"),
    **dict.fromkeys(("int8", "qint8"), "int8"),
    **dict.fromkeys(("float8", "qfloat8", "qfloat8_e4m3fn"), "float8"),
    **dict.fromkeys(("nf4", "uint4", "qint4"), "nf4"),
}
# Optimizer state in bytes per trained parameter of 32 bits; the first that a name begins with counts.
_STATES = {
    **dict.fromkeys(("adamw8", "adam8", "adamwfp8", "adamfp8"), 2.1),
    "adamw4bit": 1.1,
    "adamw_bf16": 6.0,  # two moments and what rounding lost, in 16 bits
    "ademamix8bit": 3.1,
    "ademamix": 12.0,
    "adan": 16.0,
    "lion8bit": 1.1,
    "adafactor": 0.25,  # one number a row and a column: of a LoRA, 4 / rank
    **dict.fromkeys(("automagic2", "automagic3"), 1.3),
    "automagic": 2.3,
    "prodigy8bit": 4.0,
    "prodigy": 16.0,
    "dadaptlion": 8.0,
    "dadaptadan": 20.0,
    "dadapt": 12.0,
    "ranger": 12.0,
    **dict.fromkeys(("sgdnesterov8bit", "rmsprop8bit", "adagrad8bit"), 1.1),
    **dict.fromkeys(("lion", "adagrad", "rmsprop", "asgd", "muon", "sgdnesterov", "sgdschedulefree"), 4.0),
    "sgd": 0.0,
}
# Bytes per weight after quantizing, without the scales per row.
QUANTIZED = {
    **dict.fromkeys(("qfloat8", "qfloat8_e4m3fn", "qfloat8_e4m3fnuz", "qfloat8_e5m2", "float8", "fp8"), 1.0),
    **dict.fromkeys(("int8", "qint8", "uint8"), 1.0),
    "int16": 2.0,
    "uint7": 0.94,
    "uint6": 0.81,
    "uint5": 0.69,
    **dict.fromkeys(("uint4", "qint4"), 0.56),
    "uint3": 0.44,
    **dict.fromkeys(("uint2", "qint2"), 0.31),
    "nf4": 0.53,
}


def state_bytes(optimizer: str) -> float:
    """Optimizer state in bytes per trained parameter; 8 (two 32-bit moments) for a name not known here.

    Whose implementation it is and where its state lies ("optimi-lion", "PagedLion8bit", "bitsandbytes.optim.Lion") is
    no part of the name.
    """
    name = re.sub(r"^(?:torch|bnb|optimi|ao|paged)-?", "", optimizer.lower().rpartition(".")[2])
    return next((size for known, size in _STATES.items() if name.startswith(known)), 8.0)
