"""A LoHa changes a Linear's weight by the product, number by number, of two matrices of low rank."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..weights.materialize import device_of

# The deviations with which LyCORIS and musubi-tuner let each matrix begin.
START = {"hada_w1_a": 0.1, "hada_w1_b": 1.0, "hada_w2_a": 0.0, "hada_w2_b": 1.0}


class _Hadamard(torch.autograd.Function):
    """x @ ((a @ b) * (c @ d)).T; backward makes the large matrices again, so that no Linear keeps them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
        ctx.save_for_backward(x, a, b, c, d)
        return nn.functional.linear(x, (a @ b) * (c @ d))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        grad: Tensor = grads[0]
        x, a, b, c, d = ctx.saved_tensors
        first, second = a @ b, c @ d
        back = grad @ (first * second)
        change = grad.flatten(0, -2).t() @ x.flatten(0, -2)
        second, first = second * change, first * change  # the gradients of first and second
        return back, second @ b.t(), a.t() @ second, first @ d.t(), c.t() @ first


class LohaLinear(nn.Module):
    """A frozen Linear plus scale * (w1_a @ w1_b) * (w2_a @ w2_b) while `active`: out x rank times rank x in."""

    def __init__(
        self, base: nn.Module, shape: tuple[int, int], rank: int, generator: torch.Generator, scale: float = 1.0
    ) -> None:
        super().__init__()
        rows, columns = shape
        device = device_of(base)
        self.base = base
        self.active = True
        self.scale = scale
        for name, deviation in START.items():
            start = torch.empty((rows, rank) if name.endswith("a") else (rank, columns))
            nn.init.normal_(start, std=deviation, generator=generator)
            self.register_parameter(name, nn.Parameter(start.to(device)))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.base(x)
        if not self.active:
            return y
        a, b, c, d = (self.get_parameter(name).to(y.dtype) for name in START)
        apply: Any = _Hadamard.apply
        change: Tensor = apply(x.to(y.dtype), a if self.scale == 1.0 else a * self.scale, b, c, d)
        return y + change
