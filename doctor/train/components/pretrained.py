"""The smaller components are loaded so that no tensor of them stays at random numbers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from ..runtime.train_error import TrainError, first_line
from ..weights.materialize import install_tensors, read_tensors, shapes_of
from .component_files import checked_tensors, component_config


def load_pretrained(make: Any, folder: Path, what: str, **options: Any) -> Any:
    """Calls `make.from_pretrained` and freezes the model.

    Raises TrainError when it fails or when a tensor is not in the files.
    """
    with quiet() if make.__module__.startswith("transformers.") else nullcontext():
        try:
            model, info = make.from_pretrained(str(folder), output_loading_info=True, **options)
        except (OSError, ValueError, RuntimeError, KeyError) as error:
            raise TrainError(f"The {what} of {folder} cannot be loaded: {first_line(error)}") from error
    missing = sorted(info["missing_keys"]) or [str(item[0]) for item in info.get("mismatched_keys") or []]
    if missing:
        raise TrainError(
            f"{len(missing)} tensors of the {what} in {folder} are missing or of another shape, first {missing[0]}. "
            "It would run with random numbers in their place. Fetch the complete files again."
        )
    return model.eval().requires_grad_(False)


def load_file(make: Any, file: Path, dtype: torch.dtype, told: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """Returns the diffusers model of class `make` from a single file, frozen, on the CPU. Raises TrainError.

    `told` are settings that its tensors do not tell.
    """
    with torch.device("meta"):
        model = make.from_config({**told, **component_config(file, make.__name__)})
    entries = checked_tensors(file, make.__name__, shapes_of(model))
    install_tensors(model, dict(read_tensors(entries, {}, "none", {}, dtype, torch.device("cpu"))), {})
    return model.eval().requires_grad_(False)


def load_tokenizer(folder: Path) -> Any:
    """Returns the tokenizer of a folder. Raises TrainError."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from transformers import AutoTokenizer

    make: Any = AutoTokenizer
    try:
        return make.from_pretrained(str(folder))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TrainError(f"The tokenizer of {folder} cannot be loaded: {first_line(error)}") from error


@contextmanager
def quiet() -> Iterator[None]:
    """Runs the block without the progress bars and load reports of transformers."""
    from transformers.utils import logging as module

    logging: Any = module
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
