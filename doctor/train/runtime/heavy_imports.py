"""The import of torch, diffusers and transformers is slow, often broken, and larger than it need be."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from .train_error import TrainError, first_line

# What diffusers and transformers import wherever it is installed, and the runner never uses: other quantizers, which
# take 1.6 s, warn of what they lack, and end the start where they were made for another PyTorch.
QUANTIZERS = ("torchao", "bitsandbytes", "optimum")
# What diffusers imports besides, and a process that only trains does not use: the library of text encoders, the
# LoRAs of another one, and torch's compiler.
HIDDEN = (*QUANTIZERS, "transformers", "peft", "torchvision", "torch._dynamo")


@contextmanager
def explained_imports() -> Iterator[None]:
    """Raises TrainError, in words, where an import within the block fails."""
    # Looking through all that the imports make for garbage was a fifth of their time, and each later look took 0.3 s.
    first, collects = "torch" not in sys.modules, gc.isenabled()
    gc.disable()
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] == __name__.partition(".")[0]:
            raise  # a mistake of zdoctor's own
        raise TrainError(
            f'Training needs packages that are not here ({error}). Install them: pip install "zdoctor[train]"'
        ) from error
    except ValueError as error:
        if "AttentionBackendName" not in str(error):
            raise
        raise TrainError(
            f"The environment variable DIFFUSERS_ATTN_BACKEND names no attention of this diffusers ({error}). Remove "
            "it; the runner's attention is PyTorch's own."
        ) from error
    except RuntimeError as error:  # diffusers' own for whatever went wrong in a package that it imports
        raise TrainError(
            f"The import of diffusers fails: {_first(error)} A package in this environment does not fit the others, "
            "often torchvision, xformers or torchao made for another PyTorch. Install the one for this PyTorch, or "
            "remove it: the runner needs none of these three."
        ) from error
    finally:
        if collects:
            gc.enable()
    if first:
        gc.freeze()


def import_lean(package: str, module: str) -> None:
    """Imports `package`.`module` as if none of HIDDEN were installed; those that are there already stay.

    For diffusers this takes 2.5 instead of 4.4 seconds of the processor and 268 instead of 393 MiB (measured,
    docs/measurements.md). What it has not found stays lost to it: its pipelines and LoRA loaders do not work in this
    process any more. A package that cannot do without them is left as it was, not imported.
    """
    import torch

    compiler: Any = torch.compiler
    disable = compiler.disable
    compiler.disable = _left_alone
    try:
        with without(HIDDEN):
            importlib.import_module(f"{package}.{module}")
    except (ImportError, RuntimeError, AttributeError):
        for name in [name for name in sys.modules if name.partition(".")[0] == package]:
            del sys.modules[name]
    finally:
        compiler.disable = disable
    _keep_compiler_away()


@contextmanager
def without(names: Iterable[str]) -> Iterator[None]:
    """Within the block these packages are not found, but for those that are imported already."""
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: not found
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


def _left_alone(function: Callable[..., Any] | None = None, *_args: Any, **_options: Any) -> Any:
    """A decorator that changes nothing: there is no compiler to keep off the function."""
    return (lambda found: found) if function is None else function


def _keep_compiler_away() -> None:
    """torch imports its compiler when these are first called, to have them left alone. Here they are left alone.

    Where torch does this otherwise than 2.13, nothing happens but that import.
    """
    import torch
    from torch.optim import Optimizer
    from torch.utils import checkpoint

    if "torch._dynamo" in sys.modules:
        return
    names = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")
    functions = [getattr(Optimizer, name) for name in names]
    functions += [checkpoint.checkpoint, getattr(checkpoint, "_run_fn_with_dynamo_disabled", None)]
    for function in functions:
        plain = getattr(function, "__wrapped__", None)
        if plain is not None:
            setattr(plain, "__dynamo_disable", plain)
    config = _Later("torch._dynamo.config", **SWITCH)
    holder: Any = torch
    holder._dynamo = _Later("torch._dynamo", config=config, disable=_left_alone)


# What checkpoint reads of the compiler's config before each block. It counts only while something is traced.
SWITCH = {"error_on_nested_fx_trace": True}


class _Later:
    """A module that is imported when more is asked of it than the given names; torch then holds the real one."""

    def __init__(self, module: str, **known: Any) -> None:
        vars(self).update(known)
        self.__name__ = module

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


def _first(error: BaseException) -> str:
    """What began a chain of errors, as a sentence."""
    while (earlier := error.__cause__ or error.__context__) is not None:
        error = earlier
    text = first_line(error)
    return text if text.endswith(".") else f"{text}."
