"""A network may begin with the weights of a LoRA or LoKr file (pretrained_lora_path, network_weights)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from ...families.record import Family
from ...families.start import is_kohya, network_shapes, sources
from ...model.recipe import Network
from ...model.start import misfit
from ..runtime.train_error import TrainError
from .lora import at_scale_one


def read_initial_weights(
    network: Network, linears: Mapping[str, tuple[int, int]], family: Family
) -> dict[str, Tensor]:
    """Returns the tensors that the network of a new run begins with; none when it begins at zero.

    `linears` are (out, in) by name. Only the weights are taken, no step and, as in ai-toolkit, no alpha. Raises
    TrainError when the file is not a network of exactly this kind, rank and model.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    if not network.initial_weights:
        return {}
    file = Path(network.initial_weights)
    if file.is_dir():
        raise TrainError(f"{file}, the LoRA to start from, is a folder; name the .safetensors file in it.")
    try:
        held = load(file.read_bytes())  # not mapped: Windows lets nobody write a file that is, this run neither
    except (OSError, SafetensorError) as error:
        raise TrainError(f"{file}, the LoRA to start from, cannot be read: {error}.") from error
    tensors = {
        name: held[key] if rows is None else held[key][rows]
        for name, (key, rows) in sources(held, linears, family.class_name).items()
    }
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if reason := misfit(shapes, network_shapes(network, linears), held):
        template, values = reason
        raise TrainError(template.format(path=file, **values))
    own = {family.lora_prefix + name: tensor for name, tensor in tensors.items()}
    return own if is_kohya(held) else at_scale_one(own, 1.0 / network.scale)
