"""The LoRA or LoKr wraps Linears of the frozen transformer; a merged training adapter can be removed for previews."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...families.network import is_kohya, lokr_factor, lokr_rank, network_shapes, sources
from ...families.record import Family
from ...model import recipe as recipes
from ...model.start import misfit
from ..families import family_of
from ..kernels.quantized_linear import QuantizedLinear
from ..runtime.train_error import TrainError
from ..weights.materialize import device_of, replace_module
from ..weights.training_adapter import LoraDelta
from .lokr import LokrLinear

# A LoRA's parameters as its file names them; those of a LoKr have the same names there.
FILE_NAMES = {"lora_A": "lora_A.weight", "lora_B": "lora_B.weight"}
Network = Mapping[str, nn.Module]


class Dropout(NamedTuple):
    """The three dropouts of a LoRA, as shares.

    Of the values between A and B, of the ranks (for each sample others, the same for all its tokens), and of the
    Linears (the whole LoRA for a batch).
    """

    values: float = 0.0
    ranks: float = 0.0
    modules: float = 0.0


class LoraLinear(nn.Module):
    """A frozen Linear plus scale * B @ A while `active`; `lora_A` (rank x in) and `lora_B` (out x rank), float32."""

    def __init__(
        self,
        base: nn.Module,
        shape: tuple[int, int],
        rank: int,
        dropout: Dropout,
        generator: torch.Generator,
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        rows, columns = shape
        device = device_of(base)
        self.base = base
        self.active = True
        self.dropout = dropout
        self.scale = scale
        down = torch.empty(rank, columns)
        nn.init.kaiming_uniform_(down, a=math.sqrt(5), generator=generator)
        self.lora_A = nn.Parameter(down.to(device))
        self.lora_B = nn.Parameter(torch.zeros(rows, rank, device=device))

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(0, -2)  # what is added to it in place must be no view of it
        y: Tensor = self.base(flat)
        shape = (*x.shape[:-1], y.shape[-1])
        out = self.dropout
        if not self.active or (self.training and out.modules and torch.rand(()).item() < out.modules):
            return y.view(shape)
        # In bfloat16 beside a base in bfloat16, as autocast does it: half the memory and twice as fast. float16 would
        # lose small gradients.
        dtype = y.dtype if y.dtype == torch.bfloat16 else self.lora_A.dtype
        low = nn.functional.linear(flat.to(dtype), self.lora_A.to(dtype))
        if out.values:
            low = nn.functional.dropout(low, out.values, self.training)
        if out.ranks and self.training:
            each = low.view(*x.shape[:-1], -1)
            kept = torch.rand(len(x), *([1] * (x.dim() - 2)), low.shape[-1], device=low.device) > out.ranks
            low = (each * kept / (1.0 - out.ranks)).flatten(0, -2)
        if self.scale != 1.0:
            low = low * self.scale
        return y.addmm_(low, self.lora_B.to(dtype).t()).view(shape)


class AdapterRemoval(nn.Module):
    """A Linear into which an adapter was merged, and which subtracts it again while `active`."""

    def __init__(self, base: nn.Module, delta: LoraDelta, dtype: torch.dtype) -> None:
        super().__init__()
        self.base = base
        self.active = False
        device = device_of(base)
        self.register_buffer("down", delta.down.to(device, dtype))
        self.register_buffer("up", (delta.up * delta.scale).to(device, dtype))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.base(x)
        if not self.active:
            return y
        low = nn.functional.linear(x, self.get_buffer("down").to(x.dtype))
        return y - nn.functional.linear(low, self.get_buffer("up").to(x.dtype))


def lora_targets(model: nn.Module, left_out: str = "", *, refiners: bool = False) -> dict[str, tuple[int, int]]:
    """Returns name -> (out, in) of the Linears that a LoRA covers, `refiners` on request, without those like
    `left_out`.
    """
    blocks = family_of(model).RECORD.targets(refiners=refiners)
    without = re.compile(left_out or r"(?!)")
    return {
        name: (module.out_features, module.in_features)
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear | QuantizedLinear) and name.split(".", 1)[0] in blocks
        if not without.search(name)
    }


def add_network(model: nn.Module, shapes: dict[str, tuple[int, int]], how: recipes.Network, seed: int) -> Network:
    """Wraps the Linears of `shapes`; returns the trained modules by the name of the Linear. Same seed, same start."""
    generator = torch.Generator().manual_seed(seed)
    network: dict[str, nn.Module] = {}
    for name, shape in shapes.items():
        base = model.get_submodule(name)
        if how.type == "lokr":
            network[name] = LokrLinear(base, shape, lokr_factor(how, name), lokr_rank(how), generator)
        else:
            network[name] = LoraLinear(base, shape, how.rank, network_dropout(how), generator, how.scale)
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


def parameter_groups(how: recipes.Network, parameters: Mapping[str, nn.Parameter]) -> Sequence[Any]:
    """Returns the parameter groups of the optimizer; those of LoRA+ have B apart, `times` as fast."""
    if how.lora_plus_ratio == 1.0:
        return list(parameters.values())
    ends = FILE_NAMES["lora_B"]
    up = [value for key, value in parameters.items() if key.endswith(ends)]
    rest = [value for key, value in parameters.items() if not key.endswith(ends)]
    return [{"params": rest}, {"params": up, "times": how.lora_plus_ratio}]


def at_scale_one(values: Mapping[str, Tensor], scale: float) -> dict[str, Tensor]:
    """Returns a LoRA's tensors by their keys in the file, with the scale in B, so that programs read them alike."""
    return {key: value * scale if key.endswith(FILE_NAMES["lora_B"]) else value for key, value in values.items()}


def trainable_parameters(network: Network, prefix: str) -> dict[str, nn.Parameter]:
    """Returns the trained parameters by their key in the file, which is ai-toolkit's."""
    return {
        f"{prefix}{name}.{FILE_NAMES.get(parameter, parameter)}": value
        for name, module in network.items()
        for parameter, value in module.named_parameters(recurse=False)
    }


def read_initial_weights(
    network: recipes.Network, linears: Mapping[str, tuple[int, int]], family: Family
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
