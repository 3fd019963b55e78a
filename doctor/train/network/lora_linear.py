"""A LoRA on one Linear; a merged training adapter can be removed for previews."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..kernels.quantized_linear import QuantizedLinear, put_together
from ..weights.materialize import device_of
from ..weights.training_adapter import LoraDelta


class Dropout(NamedTuple):
    """The three dropouts of a LoRA, as shares.

    Of the values between A and B, of the ranks (for each sample others, the same for all its tokens), and of the
    Linears (the whole LoRA for a batch).
    """

    values: float = 0.0
    ranks: float = 0.0
    modules: float = 0.0


class LoraLinear(nn.Module):
    """A frozen Linear plus scale * B @ A while `active`; `lora_A` (rank x in) and `lora_B` (out x rank), float32.

    A begins with normal numbers of this `deviation`, 0: with Kaiming's uniform ones.
    """

    def __init__(
        self,
        base: nn.Module,
        shape: tuple[int, int],
        rank: int,
        dropout: Dropout,
        generator: torch.Generator,
        scale: float = 1.0,
        deviation: float = 0.0,
    ) -> None:
        super().__init__()
        rows, columns = shape
        device = device_of(base)
        self.base = base
        self.active = True
        self.dropout = dropout
        self.scale = scale
        down = torch.empty(rank, columns)
        if deviation:
            nn.init.normal_(down, std=deviation, generator=generator)
        else:
            nn.init.kaiming_uniform_(down, a=math.sqrt(5), generator=generator)
        self.lora_A = nn.Parameter(down.to(device))
        self.lora_B = nn.Parameter(torch.zeros(rows, rank, device=device))

    @property
    def weight(self) -> Any:
        """The base's, whose dtype T5 asks for."""
        return self.base.weight

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


def frozen_weight(base: nn.Module) -> Tensor:
    """Returns the weight (out x in) by which a frozen Linear multiplies just now, in float32."""
    if isinstance(base, AdapterRemoval):
        weight = frozen_weight(base.base)
        if base.active:
            weight = weight - base.get_buffer("up").float() @ base.get_buffer("down").float()
        return weight
    if isinstance(base, QuantizedLinear):
        return base.weight()
    return put_together(base.get_parameter("weight")).float()


def bias_of(base: nn.Module) -> Tensor | None:
    """Returns the bias of a frozen Linear."""
    return bias_of(base.base) if isinstance(base, AdapterRemoval) else getattr(base, "bias", None)
