"""The network wraps Linears of the frozen transformer with what is trained on each, by its kind."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...families.network import (
    SCALED,
    convolutions,
    file_prefix,
    is_kohya,
    kind_at,
    lokr_factor,
    lokr_rank,
    network_shapes,
    rank_of,
    sources,
    spelled,
)
from ...families.record import Family
from ...families.record.blank import BLANK
from ...families.record.blocks import is_within
from ...model import recipe as recipes
from ...model.start import misfit
from ..families import family_of
from ..kernels.quantized_linear import QuantizedLinear
from ..runtime.train_error import TrainError
from ..weights.materialize import replace_module, shapes_of
from ..weights.training_adapter import LoraDelta
from .dora import DoraLinear
from .full import FullLinear
from .loha import LohaLinear
from .lokr import LokrLinear
from .lora_conv import LoraConv
from .lora_linear import AdapterRemoval, Dropout, LoraLinear
from .oft import OftLinear, skew

# A LoRA's parameters as its file names them; those of a LoKr have the same names there.
DOWN = ".lora_down.weight"  # as kohya's trainers name the first
FILE_NAMES = {"lora_A": "lora_A.weight", "lora_B": "lora_B.weight"}
Network = Mapping[str, nn.Module]
Shape = tuple[int, int]  # (out, in)


def _conv(base: nn.Module, shape: tuple[int, ...], how: recipes.Network, draw: torch.Generator) -> nn.Module:
    return LoraConv(base, shape, rank_of(how, shape), network_dropout(how), draw, _scale_of(shape, how))


def _lora(base: nn.Module, shape: Shape, how: recipes.Network, name: str, draw: torch.Generator) -> nn.Module:
    kind = DoraLinear if how.type == "dora" else LoraLinear
    return kind(base, shape, how.rank, network_dropout(how), draw, how.scale, how.start_deviation)


def _lokr(base: nn.Module, shape: Shape, how: recipes.Network, name: str, draw: torch.Generator) -> nn.Module:
    return LokrLinear(base, shape, lokr_factor(how, name), lokr_rank(how), draw, how.scale)


def _loha(base: nn.Module, shape: Shape, how: recipes.Network, name: str, draw: torch.Generator) -> nn.Module:
    return LohaLinear(base, shape, how.rank, draw, how.scale)


def _oft(base: nn.Module, shape: Shape, how: recipes.Network, name: str, draw: torch.Generator) -> nn.Module:
    return OftLinear(base, shape, how.rank, how.alpha)


def _full(base: nn.Module, shape: Shape, how: recipes.Network, name: str, draw: torch.Generator) -> nn.Module:
    return FullLinear(base, shape)


# What is trained on a Linear, by the kind of network.
KINDS: Mapping[str, Callable[[nn.Module, Shape, recipes.Network, str, torch.Generator], nn.Module]] = {
    "lora": _lora,
    "dora": _lora,
    "lokr": _lokr,
    "loha": _loha,
    "oft": _oft,
    "full": _full,
}


def lora_targets(
    model: nn.Module, left_out: str = "", *, refiners: bool = False, windows: bool = False
) -> dict[str, tuple[int, ...]]:
    """Returns name -> (out, in) of the Linears that a LoRA covers, `refiners` on request, without those like
    `left_out`. Of a UNet the convolutions of one place, too, with `windows` those of several.
    """
    record = family_of(model).RECORD
    blocks = record.targets(refiners=refiners)
    without = re.compile(left_out or r"(?!)")
    found: dict[str, tuple[int, ...]] = {
        name: (module.out_features, module.in_features)
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear | QuantizedLinear) and is_within(f"{name}.weight", blocks)
    }
    if record.convolves:
        found |= convolutions(shapes_of(model), blocks, windows)
    return {name: shape for name, shape in found.items() if not without.search(name)}


def whole_layers(model: nn.Module, how: recipes.Network) -> list[str]:
    """Returns the names of the layers with a weight that the config chooses to train as a whole."""
    blocks = family_of(model).RECORD.targets(refiners=how.refiners)
    without, whole = (re.compile(pattern or r"(?!)") for pattern in (how.excluded, how.full))
    return [
        name.removesuffix(".weight")
        for name, _ in model.named_parameters()
        if name.endswith(".weight") and is_within(name, blocks)
        if whole.search(name.removesuffix(".weight")) and not without.search(name.removesuffix(".weight"))
    ]


def add_network(model: nn.Module, shapes: Mapping[str, tuple[int, ...]], how: recipes.Network, seed: int) -> Network:
    """Wraps the layers of `shapes`; returns the trained modules by the name of the Linear. Same seed, same start."""
    generator = torch.Generator().manual_seed(seed)
    network: dict[str, nn.Module] = {}
    for name, (out, inputs, *window) in shapes.items():
        base = model.get_submodule(name)
        if window:
            network[name] = _conv(base, (out, inputs, *window), how, generator)
        else:
            network[name] = KINDS[kind_at(how, name)](base, (out, inputs), how, name, generator)
        replace_module(model, name, network[name])
    return network


def add_adapter_removal(model: nn.Module, adapter: dict[str, LoraDelta], dtype: torch.dtype) -> list[AdapterRemoval]:
    """Makes a merged adapter removable. Call before `add_network`, and `lora_targets` before this."""
    wrapped: list[AdapterRemoval] = []
    for name, delta in adapter.items():
        wrapped.append(AdapterRemoval(model.get_submodule(name), delta, dtype))
        replace_module(model, name, wrapped[-1])
    return wrapped


def network_dropout(network: recipes.Network) -> Dropout:
    return Dropout(network.dropout, network.rank_dropout, network.module_dropout)


def parameter_groups(
    how: recipes.Network,
    parameters: Mapping[str, nn.Parameter],
    of_texts: Mapping[str, Mapping[str, nn.Parameter]],
    rate: float,
) -> Sequence[Any]:
    """Returns the parameter groups of the optimizer: what learns `times` as fast as at `rate` is apart.

    That is B with LoRA+, and text encoders (`of_texts`: their parameters by component) with rates of their own.
    """
    parts = [(parameters, 1.0, how.lora_plus_ratio)]
    parts += [(own, how.text_rates[name] / rate, how.text_plus_ratio) for name, own in of_texts.items()]
    groups: dict[float, list[nn.Parameter]] = {}
    for own, times, ratio in parts:
        for key, value in own.items():
            faster = ratio if key.endswith(FILE_NAMES["lora_B"]) else 1.0
            groups.setdefault(times * faster, []).append(value)
    if [*groups] == [1.0]:
        return groups[1.0]
    return [{"params": values, "times": times} for times, values in groups.items()]


def as_saved(values: Mapping[str, Tensor], how: recipes.Network, family: Family = BLANK) -> dict[str, Tensor]:
    """Returns a network's tensors by their keys as its file has them, so that programs read them alike: to be used at
    scale 1, with a constraint already obeyed; of a family with kohya's names with the alpha that says the scale.
    """
    if how.type == "oft":
        return {key: skew(value, how.alpha) / 2 for key, value in values.items()}
    if not is_kohya(family.lora_prefixes):
        return _scaled(values, how.scale)
    found = {spelled(key, family): value for key, value in values.items()}
    alphas = {
        f"{key.removesuffix(DOWN)}.alpha": torch.tensor(len(down) * _scale_of(down.shape, how))
        for key, down in found.items()
        if key.endswith(DOWN)
    }
    return {**found, **alphas}


def _scale_of(shape: Sequence[int], how: recipes.Network) -> float:
    """What the product with a tensor of this shape is multiplied by."""
    return how.scale if math.prod(shape[2:]) == 1 else how.conv_scale


def _scaled(values: Mapping[str, Tensor], scale: float) -> dict[str, Tensor]:
    if scale == 1.0:
        return dict(values)
    return {key: value * scale if key.endswith(SCALED) else value for key, value in values.items()}


def trainable_parameters(network: Network, prefix: str) -> dict[str, nn.Parameter]:
    """Returns the trained parameters by their key in the file, which is ai-toolkit's."""
    return {
        f"{prefix}{name}.{FILE_NAMES.get(parameter, parameter)}": value
        for name, module in network.items()
        for parameter, value in module.named_parameters(recurse=False)
    }


def read_initial_weights(
    network: recipes.Network, linears: Mapping[str, tuple[int, ...]], family: Family
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
    prefix = file_prefix(network, family.lora_prefix)
    own = {prefix + name: tensor for name, tensor in tensors.items()}
    return own if is_kohya(held) else _scaled(own, 1.0 / network.scale)
