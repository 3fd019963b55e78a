"""A network may begin with the weights of a LoRA or LoKr file (pretrained_lora_path, network_weights)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from ...families.network import is_kohya, network_shapes, sources
from ...model.run import Run
from ...model.start import misfit, start_of
from ..runtime.train_error import TrainError
from .lora import Network, at_scale_one, trainable_parameters


def read_initial_weights(
    run: Run, linears: Mapping[str, tuple[int, int]], prefix: str, class_name: str
) -> dict[str, Tensor]:
    """Returns the tensors that the network of a new run begins with; none when it begins at zero.

    `linears` are (out, in) by name; `prefix` and the transformer's `class_name` are the family's. Only the weights
    are taken, no step and, as in ai-toolkit, no alpha. Raises TrainError when the file is not a network of exactly
    this kind, rank and model.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    written = start_of(run)
    if not written:
        return {}
    file = Path(written)
    if file.is_dir():
        raise TrainError(f"{file}, the LoRA to start from, is a folder; name the .safetensors file in it.")
    try:
        held = load(file.read_bytes())  # not mapped: Windows lets nobody write a file that is, this run neither
    except (OSError, SafetensorError) as error:
        raise TrainError(f"{file}, the LoRA to start from, cannot be read: {error}.") from error
    tensors = {
        name: held[key] if rows is None else held[key][rows]
        for name, (key, rows) in sources(held, linears, class_name).items()
    }
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if reason := misfit(shapes, network_shapes(run, linears), held):
        template, values = reason
        raise TrainError(template.format(path=file, **values))
    own = {prefix + name: tensor for name, tensor in tensors.items()}
    return own if is_kohya(held) else at_scale_one(own, 1.0 / run.recipe.network.scale)


def set_initial_weights(network: Network, tensors: Mapping[str, Tensor], prefix: str) -> None:
    """Puts the tensors of `read_initial_weights` into the network."""
    with torch.no_grad():
        for key, parameter in trainable_parameters(network, prefix).items():
            if key in tensors:
                parameter.copy_(tensors[key])
