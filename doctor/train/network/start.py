"""Beginning with the weights of a LoRA or LoKr file (pretrained_lora_path, network_weights)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from ...architectures.network import lokr_factor, lokr_rank, lokr_shapes
from ...model.run import Run
from ..errors import TrainError
from .kohya_lora import from_kohya, is_kohya
from .lora import Network, at_scale_one, scale, trainable


def read_start(run: Run, linears: Mapping[str, tuple[int, int]], prefix: str, class_name: str) -> dict[str, Tensor]:
    """The tensors that the network of a new run begins with; none when it begins at zero.

    `linears` are (out, in) by name; `prefix` and the transformer's `class_name` are the family's. Only the weights
    are taken, no step and, as in ai-toolkit, no alpha. Raises TrainError when the file is not a network of exactly
    this kind, rank and model.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    written = run.setting("network/pretrained_lora_path") or run.setting("network/network_weights")
    if not written:
        return {}
    file = Path(str(written))
    if file.is_dir():
        raise TrainError(f"{file}, the LoRA to start from, is a folder; name the .safetensors file in it.")
    try:
        held = load_file(str(file))
    except (OSError, SafetensorError) as error:
        raise TrainError(f"{file}, the LoRA to start from, cannot be read: {error}.") from error
    ours = {
        prefix + key.removeprefix("transformer.").removeprefix("diffusion_model."): value
        for key, value in held.items()
        if not key.endswith(".alpha")
    }
    if is_kohya(held):
        tensors = {prefix + key: value for key, value in from_kohya(held, linears, class_name).items()}
    else:
        tensors = at_scale_one(ours, 1.0 / scale(run))
    expected = _shapes(run, linears, prefix)
    if not _modules(expected) & _modules(tensors):
        raise TrainError(
            f"{file}, the LoRA to start from, is of another architecture or has the names of another program: it "
            f"holds {_some(held)}, and this run trains {_some(expected)}."
        )
    for key in sorted(expected.keys() | tensors.keys()):
        is_, should = tuple(tensors[key].shape) if key in tensors else None, expected.get(key)
        if is_ != should:
            raise TrainError(
                f"{file}, the LoRA to start from, does not fit: {key} is {_words(is_)} there and {_words(should)} in "
                "this run. Give the run the rank and network type of the file."
            )
    return tensors


def _modules(keys: Iterable[str]) -> set[str]:
    return {re.split(r"\.lo(?:ra|kr)_", key)[0] for key in keys}


def _some(keys: Iterable[str]) -> str:
    return min(keys, default="nothing")


def begin(network: Network, tensors: Mapping[str, Tensor], prefix: str) -> None:
    """Put the tensors of `read_start` into the network."""
    with torch.no_grad():
        for key, parameter in trainable(network, prefix).items():
            if key in tensors:
                parameter.copy_(tensors[key])


def _shapes(run: Run, linears: Mapping[str, tuple[int, int]], prefix: str) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for name, (out, inputs) in linears.items():
        if run.network_type == "lokr":
            parts = lokr_shapes(out, inputs, lokr_factor(run), lokr_rank(run))
        else:
            parts = {"lora_A.weight": (run.rank, inputs), "lora_B.weight": (out, run.rank)}
        found.update((f"{prefix}{name}.{part}", shape) for part, shape in parts.items())
    return found


def _words(shape: tuple[int, ...] | None) -> str:
    return "absent" if shape is None else " x ".join(map(str, shape))
