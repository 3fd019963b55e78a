"""The LoRA or LoKr that is trained, and the live removal of a merged training adapter for previews."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...families import family_with
from ...families.network import lokr_factor, lokr_rank
from ...model.run import Run
from ..families import family_of
from ..kernels.quantized_linear import QuantizedLinear
from ..weights.materialize import device_of, linears, replace
from ..weights.training_adapter import Delta
from .lokr import LokrLinear

# A LoRA's parameters as its file names them; those of a LoKr have the same names there.
FILE_NAMES = {"lora_A": "lora_A.weight", "lora_B": "lora_B.weight"}
Network = Mapping[str, nn.Module]


class Dropout(NamedTuple):
    """Shares of what is left out while a LoRA trains.

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


class WithoutAdapter(nn.Module):
    """A Linear into which an adapter was merged. While `active`, the adapter's part is subtracted again."""

    def __init__(self, base: nn.Module, delta: Delta, dtype: torch.dtype) -> None:
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


def targets(model: nn.Module, left_out: str = "", *, refiners: bool = False) -> dict[str, tuple[int, int]]:
    """The Linears that a LoRA covers, also of Z-Image's `refiners`, but those in whose name the pattern `left_out` is
    found; name -> (out, in).
    """
    family = family_of(model)
    found = linears(model)
    found.update(
        (name, (module.out_features, module.in_features))
        for name, module in model.named_modules()
        if isinstance(module, QuantizedLinear)
    )
    without = re.compile(left_out or r"(?!)")
    more = family_with(family.CLASS_NAME).refiners if refiners else ()
    return {
        name: shape
        for name, shape in found.items()
        if (family.is_target(name) or name.split(".", 1)[0] in more) and not without.search(name)
    }


def add_network(model: nn.Module, shapes: dict[str, tuple[int, int]], run: Run, seed: int) -> Network:
    """Wrap the Linears of `shapes`; returns the trained modules by the name of the Linear. Same seed, same start."""
    generator = torch.Generator().manual_seed(seed)
    network: dict[str, nn.Module] = {}
    for name, shape in shapes.items():
        base = model.get_submodule(name)
        if run.recipe.network.type == "lokr":
            network[name] = LokrLinear(
                base, shape, lokr_factor(run.recipe.network, name), lokr_rank(run.recipe.network), generator
            )
        else:
            network[name] = LoraLinear(
                base, shape, run.recipe.network.rank, dropout(run), generator, run.recipe.network.scale
            )
        replace(model, name, network[name])
    return network


def add_removal(model: nn.Module, adapter: dict[str, Delta], dtype: torch.dtype) -> list[WithoutAdapter]:
    """Make a merged adapter removable. Call before `add_network`, and `targets` before this."""
    wrapped: list[WithoutAdapter] = []
    for name, delta in adapter.items():
        wrapped.append(WithoutAdapter(model.get_submodule(name), delta, dtype))
        replace(model, name, wrapped[-1])
    return wrapped


def dropout(run: Run) -> Dropout:
    """What of a LoRA a training step leaves out."""
    network = run.recipe.network
    return Dropout(network.dropout, network.rank_dropout, network.module_dropout)


def groups(run: Run, parameters: Mapping[str, nn.Parameter]) -> Sequence[Any]:
    """What the optimizer is given: the parameters, or, for LoRA+, those of B apart, `times` as fast."""
    if run.recipe.network.lora_plus_ratio == 1.0:
        return list(parameters.values())
    ends = FILE_NAMES["lora_B"]
    up = [value for key, value in parameters.items() if key.endswith(ends)]
    rest = [value for key, value in parameters.items() if not key.endswith(ends)]
    return [{"params": rest}, {"params": up, "times": run.recipe.network.lora_plus_ratio}]


def at_scale_one(values: Mapping[str, Tensor], scale: float) -> dict[str, Tensor]:
    """A LoRA's tensors by their keys in the file with the scale in B, so that every program reads them alike."""
    return {key: value * scale if key.endswith(FILE_NAMES["lora_B"]) else value for key, value in values.items()}


def trainable(network: Network, prefix: str) -> dict[str, nn.Parameter]:
    """The trained parameters by their key in the file, which is ai-toolkit's; `prefix` is the family's."""
    return {
        f"{prefix}{name}.{FILE_NAMES.get(parameter, parameter)}": value
        for name, module in network.items()
        for parameter, value in module.named_parameters(recurse=False)
    }
