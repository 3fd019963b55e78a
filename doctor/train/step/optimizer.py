"""The optimizer is torch's own, of the package that ai-toolkit takes it from, or any class that the config names."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...model.recipe import Recipe
from ..runtime.train_error import TrainError, first_line
from ..settings.names import UNCLIPPED, class_path

# Optimizers that have an eight-bit kind, which is the same but for the rounding of its state: their classes, and the
# bytes per trained weight that 32-bit state takes more.
EIGHT_BIT = {"adamw": ("AdamW", 6), "adam": ("Adam", 6), "lion": ("Lion", 3)}
BY_BITSANDBYTES = tuple(f"{name}8bit" for name in EIGHT_BIT)
# Settings of torch's own that choose how, not what, is computed.
HOW = {"foreach", "fused", "capturable", "differentiable"}
# ai-toolkit's, where it is not the optimizer's own 1e-8.
EPS = 1e-6
# bitsandbytes keeps smaller tensors in 32 bits.
EIGHT_BIT_FROM = 4096
WITH_EPS = ("adamw", "adam", "adamw8bit", "adam8bit", "adamw8", "adam8", "prodigy", "prodigy8bit")


def make_optimizer(
    name: str,
    settings: Mapping[str, Any],
    rate: float,
    parameters: Iterable[Any],
    device: torch.device,
    note: Callable[[str], None],
) -> torch.optim.Optimizer:
    """Returns the optimizer of that name as ai-toolkit makes it; TrainError where it does not take its settings.

    `parameters` are Parameters or the groups of them that optimizers take.
    Eight-bit kinds need a bitsandbytes that works on the device; else the plain one is taken, said by `note`.
    """
    trained = list(parameters)
    keywords: dict[str, Any] = {"lr": rate, **({"eps": EPS} if name in WITH_EPS else {}), **settings}
    if isinstance(keywords.get("betas"), list):
        keywords["betas"] = tuple(keywords["betas"])
    if name in BY_BITSANDBYTES:
        name = name.removesuffix("8bit")
        word, more = EIGHT_BIT[name]
        made, why = _eight_bit(f"{word}8bit", trained, keywords, device)
        if made is not None:
            return made
        note(
            f"{name}8bit needs bitsandbytes, and {why}. Plain {word} is used with the same settings: the same "
            f"updates without the 8-bit rounding, {more} more bytes per trained weight."
        )
    if name == "automagic" and rate > 1e-3:
        note(f"Automagic begins at a learning rate of 1e-06 here: {rate:g} is above what it takes, 0.001.")
    if name in ("prodigy", "prodigy8bit") and rate < 0.1:
        note(
            f"Prodigy finds the step size and multiplies it by the learning rate, here {rate:g} (as in ai-toolkit, "
            "whatever that prints). It is made for lr: 1."
        )
    try:
        return _plain(name, trained, keywords, device)
    except (TypeError, ValueError, IndexError, AssertionError) as error:
        raise TrainError(f"The optimizer {name} does not take its settings {dict(settings)}: {error}.") from error


def try_optimizer(name: str, settings: Mapping[str, Any], rate: float, device: torch.device) -> None:
    """Makes one step of a small matrix by an optimizer of a package. Raises TrainError where that fails.

    So that a class that does not exist, lacks an argument or wants another kind of step is told before anything is
    loaded.
    """
    if not class_path(name):
        return
    parameter = nn.Parameter(torch.zeros(8, 8, device=device))
    parameter.grad = torch.ones_like(parameter)
    optimizer = make_optimizer(name, settings, rate, [parameter], device, lambda _: None)
    if switched := as_switched(optimizer):
        switched.train()
    try:
        optimizer_step(optimizer)
    except (TypeError, ValueError, RuntimeError, AttributeError, NotImplementedError) as error:
        raise TrainError(f"The optimizer {name} makes no step here: {first_line(error)}") from error
    file = io.BytesIO()
    try:
        torch.save(optimizer.state_dict(), file)
        torch.load(io.BytesIO(file.getvalue()), weights_only=True)
    except Exception as error:  # whatever it keeps there
        raise TrainError(
            f"The optimizer {name} keeps more than tensors and numbers, which a run could not go on from: "
            f"{first_line(error)}"
        ) from error


def as_switched(optimizer: torch.optim.Optimizer) -> Any:
    """The optimizer where it trains other weights than those to be used, as schedule-free ones do, else None."""
    return optimizer if all(callable(getattr(optimizer, word, None)) for word in ("train", "eval")) else None


def clip_gradients(recipe: Recipe, parameters: Sequence[nn.Parameter]) -> Tensor:
    """Clips the gradients as the config's trainer does it; returns the norm that they had."""
    how, limit = recipe.clip_method, recipe.max_grad_norm
    unclipped = recipe.optimizer.name in UNCLIPPED and recipe.optimizer.settings.get("fused", True)
    by_norm = limit > 0 and (how == "norm" or (how is None and not unclipped))
    together = True if parameters[0].device.type == "cpu" else None  # elsewhere torch does so where it can
    norm = nn.utils.clip_grad_norm_(parameters, limit if by_norm else math.inf, foreach=together)
    if how == "value" and limit > 0:
        nn.utils.clip_grad_value_(parameters, limit)
    return norm


def optimizer_step(optimizer: torch.optim.Optimizer) -> None:
    """Calls `optimizer.step()` without its wrappers, which import torch's compiler to tell it where a graph ends."""
    plain: Any = inspect.unwrap(type(optimizer).step)
    with torch.no_grad():
        plain(optimizer)


def _plain(name: str, parameters: list[Any], keywords: dict[str, Any], device: torch.device) -> torch.optim.Optimizer:
    make: Any
    if name == "adafactor":
        from transformers.optimization import Adafactor

        make = Adafactor
        eps = keywords.get("eps", (1e-30, 1e-3))
        keywords["eps"] = tuple(eps) if isinstance(eps, list | tuple) else (eps, 1e-3)
        # Without these it would set its own learning rate.
        keywords = {"relative_step": False, "scale_parameter": False, **keywords}
    elif path := class_path(name):
        make = _class(path)
    elif name == "adagrad":
        make = torch.optim.Adagrad
    else:
        make = torch.optim.AdamW if name == "adamw" else torch.optim.Adam
        if device.type in ("cpu", "cuda") and not HOW & set(keywords):
            keywords["fused"] = True  # on a CPU a fifth of the time: tensor by tensor, most of it went into the calls
    optimizer: torch.optim.Optimizer = make(parameters, **keywords)
    return optimizer


def _class(path: str) -> Any:
    """The optimizer class of that path. Raises TrainError."""
    place, _, name = path.rpartition(".")
    try:
        module = importlib.import_module(place)
    except (ImportError, OSError, RuntimeError) as error:
        why = first_line(error)
        raise TrainError(f"The module {place} of the optimizer {path} cannot be imported: {why}") from error
    found = getattr(module, name, None)
    if isinstance(found, type) and issubclass(found, torch.optim.Optimizer):
        return found
    classes = {value for value in vars(module).values() if isinstance(value, type)} - {torch.optim.Optimizer}
    there = sorted(one.__name__ for one in classes if issubclass(one, torch.optim.Optimizer))
    raise TrainError(f"{place} has no optimizer {name}; it has {', '.join(there) or 'none'}.")


def _eight_bit(
    name: str, parameters: list[Any], keywords: Mapping[str, Any], device: torch.device
) -> tuple[torch.optim.Optimizer | None, str]:
    """The optimizer of bitsandbytes, or None and why not: it makes a step of a small matrix on the device first."""
    if device.type == "cpu":
        return None, "that is ten times as slow on a processor"
    if importlib.util.find_spec("bitsandbytes") is None:
        return None, "it is not installed here"
    tried = nn.Parameter(torch.zeros(EIGHT_BIT_FROM, device=device))
    tried.grad = torch.ones_like(tried)
    try:
        make: Any = getattr(importlib.import_module("bitsandbytes.optim"), name)
        make([tried], **keywords).step()
        return make(parameters, **keywords), ""
    except (ImportError, OSError, RuntimeError, AttributeError, NotImplementedError) as error:
        return None, f"it does not work on the {device.type} here ({first_line(error)})"
