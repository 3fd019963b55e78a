"""What is added to a Linear's weight and bias is trained as a whole."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..weights.materialize import device_of
from .lora_linear import bias_of


class FullLinear(nn.Module):
    """A frozen Linear plus `diff` (out x in) and, where it has a bias, `diff_b` (out,), while `active`."""

    def __init__(self, base: nn.Module, shape: tuple[int, int]) -> None:
        super().__init__()
        device = device_of(base)
        self.base = base
        self.active = True
        self.scale = 1.0
        self.diff = nn.Parameter(torch.zeros(shape, device=device))
        self.diff_b = None if bias_of(base) is None else nn.Parameter(torch.zeros(shape[0], device=device))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.base(x)
        if not self.active:
            return y
        bias = None if self.diff_b is None else self.diff_b.to(y.dtype)
        change = nn.functional.linear(x.to(y.dtype), self.diff.to(y.dtype), bias)
        return y + (change if self.scale == 1.0 else change * self.scale)
