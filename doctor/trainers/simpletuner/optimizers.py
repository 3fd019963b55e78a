"""SimpleTuner's optimizers as the runner's, with SimpleTuner's own settings (optimizer_param.py of bc8e6ab7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...configs.refused import Reason
from ...configs.written import Written
from ...model import Run

_ADAMW: Mapping[str, Any] = {"betas": [0.9, 0.999], "weight_decay": 1e-2, "eps": 1e-6}
_ADAM: Mapping[str, Any] = {"betas": [0.9, 0.999], "weight_decay": 0.0, "eps": 1e-8}
_OPTIMI: Mapping[str, Any] = {"betas": [0.9, 0.99], "weight_decay": 0.0, "eps": 1e-6}
_LION: Mapping[str, Any] = {"betas": [0.9, 0.99], "weight_decay": 0.0}
# The runner's name, and the settings with which SimpleTuner makes it. Paged ones differ in where their state lies.
OPTIMIZERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "adamw_bf16": ("adamw", _ADAMW),
    "torch-adamw": ("adamw", {**_ADAMW, "eps": 1e-8}),
    "torch-adam": ("adam", _ADAM),
    "torch-adagrad": ("adagrad", {"lr_decay": 0.0, "weight_decay": 0.0, "eps": 1e-10}),
    "optimi-adamw": ("adamw", _OPTIMI),
    "optimi-adam": ("adam", _OPTIMI),
    "optimi-lion": ("lion", _LION),
    "bnb-adam": ("adam", _ADAM),
    "bnb-adam8bit": ("adam8bit", _ADAM),
    **dict.fromkeys(("bnb-adamw", "bnb-adamw-paged"), ("adamw", _ADAMW)),
    **dict.fromkeys(("bnb-adamw8bit", "bnb-adamw8bit-paged", "ao-adamw8bit"), ("adamw8bit", _ADAMW)),
    **dict.fromkeys(("bnb-lion", "bnb-lion-paged"), ("lion", _LION)),
    **dict.fromkeys(("bnb-lion8bit", "bnb-lion8bit-paged"), ("lion8bit", _LION)),
    "prodigy": ("prodigy", {"betas": [0.9, 0.99], "weight_decay": 0.0, "eps": 1e-8, "d0": 1e-6, "d_coef": 1.0}),
}
# Words of optimizer_config that choose how, not what, is computed.
_HOW = ("foreach", "fused", "kahan_sum", "triton", "min_8bit_size")
_NUMBERS = ("weight_decay", "eps", "lr_decay", "d0", "d_coef")


def refused_optimizer(run: Run, options: Written) -> Iterator[Reason]:
    recipe = run.recipe
    if recipe.optimizer.name not in OPTIMIZERS:
        yield "optimizer", f"optimizer {recipe.optimizer.name} is not supported; use {', '.join(OPTIMIZERS)}"
        return
    own = _own(run, options)[1]
    for name, value in _words(options).items():
        if name in _HOW:
            continue
        if name not in _NUMBERS or name not in own:
            known = ", ".join(one for one in own if one in _NUMBERS)
            instead = f"; {recipe.optimizer.name} takes {known} here" if known else ""
            yield "optimizer_config", f"{name} in optimizer_config is not supported{instead}"
        elif _number(value) is None:
            yield "optimizer_config", f"{name} in optimizer_config is {value or 'empty'}, which is no number"
    betas = [name for name in ("optimizer_beta1", "optimizer_beta2") if options.raw(name) is not None]
    if len(betas) == 1:
        yield betas[0], "optimizer_beta1 and optimizer_beta2 count only together; SimpleTuner stops otherwise"
    elif betas and "betas" not in own:
        yield betas[0], f"optimizer_beta1 and optimizer_beta2 are not supported for {recipe.optimizer.name}"
    for name in betas:
        if not 0 <= options.number(name, default=-1.0) < 1:
            yield name, f"{name} {options.raw(name)} is not a number from 0 to below 1"


def optimizer_of(run: Run, options: Written) -> tuple[str, dict[str, Any]]:
    """The runner's optimizer and its settings, for a run that is not refused."""
    name, own = _own(run, options)
    written = {word: _number(value) for word, value in _words(options).items() if word in own}
    betas = [options.number(f"optimizer_beta{index}", default=-1.0) for index in (1, 2)]
    return name, {**own, **written, **({"betas": betas} if min(betas) >= 0 else {})}


def _own(run: Run, options: Written) -> tuple[str, Mapping[str, Any]]:
    """Beside a quantized model in 32 bits SimpleTuner takes optimi-adamw for adamw_bf16."""
    recipe = run.recipe
    wide = (
        recipe.precision.quantization is not None
        and options.text("base_model_default_dtype", default="bf16") == "fp32"
    )
    name = "optimi-adamw" if wide and recipe.optimizer.name == "adamw_bf16" else recipe.optimizer.name
    return OPTIMIZERS.get(name, (name, {}))


def _words(options: Written) -> dict[str, str]:
    """The words of optimizer_config, "eps=1e-6,weight_decay=0.0"; SimpleTuner strips nothing of them."""
    parts = (word.partition("=") for word in options.text("optimizer_config").split(",") if word)
    return {name: value for name, _, value in parts}


def _number(text: str) -> float | None:
    """The number of a word, as SimpleTuner reads it: one in exponents needs a minus or a point."""
    try:
        return float(text) if "." in text or text.isdigit() or "e-" in text else None
    except ValueError:
        return None
