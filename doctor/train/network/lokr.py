"""A LoKr changes a Linear's weight by the Kronecker product of two small matrices."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ...families.network import lokr_shapes
from ..weights.materialize import device_of


class LokrLinear(nn.Module):
    """A frozen Linear plus kron(w1, w2) while `active`; w2 is scale * w2_a @ w2_b where `rank` makes that smaller."""

    def __init__(
        self,
        base: nn.Module,
        shape: tuple[int, int],
        factor: int,
        rank: int | None,
        generator: torch.Generator,
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        device = device_of(base)
        self.base = base
        self.active = True
        shapes = lokr_shapes(*shape, factor, rank)
        for name, sides in shapes.items():
            start = torch.zeros(sides)
            if name in ("lokr_w1", "lokr_w2_a"):
                nn.init.kaiming_uniform_(start, a=math.sqrt(5), generator=generator)
            setattr(self, name, nn.Parameter(start.to(device)))
        self.inner = shapes["lokr_w1"][1]
        # applied one after the other
        self.scale = 1.0 if "lokr_w2" in shapes else scale
        self.second = ("lokr_w2",) if "lokr_w2" in shapes else ("lokr_w2_b", "lokr_w2_a")

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.base(x)
        if not self.active:
            return y
        z = x.to(y.dtype).reshape(*x.shape[:-1], self.inner, -1)
        for name in self.second:
            z = nn.functional.linear(z, self.get_parameter(name).to(y.dtype))
        if self.scale != 1.0:
            z = z * self.scale
        change = torch.matmul(self.get_parameter("lokr_w1").to(y.dtype), z)
        return y + change.flatten(-2)
