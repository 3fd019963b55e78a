"""A LoRA on one convolution of a UNet."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from ..weights.materialize import device_of
from .lora_linear import Dropout


class LoraConv(nn.Module):
    """A frozen convolution plus scale * B (A x) while `active`: A (rank x in x h x w) has its window and its steps,
    B (out x rank x 1 x 1) looks at one place.
    """

    def __init__(
        self,
        base: nn.Module,
        shape: tuple[int, ...],
        rank: int,
        dropout: Dropout,
        generator: torch.Generator,
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        out, inputs, *window = shape
        device = device_of(base)
        self.base = base
        self.active = True
        self.dropout = dropout
        self.scale = scale
        down = torch.empty(rank, inputs, *window)
        nn.init.kaiming_uniform_(down, a=math.sqrt(5), generator=generator)
        self.lora_A = nn.Parameter(down.to(device))
        self.lora_B = nn.Parameter(torch.zeros(out, rank, 1, 1, device=device))

    def forward(self, x: Tensor) -> Tensor:
        base: Any = self.base
        y: Tensor = base(x)
        out = self.dropout
        if not self.active or (self.training and out.modules and torch.rand(()).item() < out.modules):
            return y
        dtype = y.dtype if y.dtype == torch.bfloat16 else self.lora_A.dtype  # as of a Linear
        low = nn.functional.conv2d(x.to(dtype), self.lora_A.to(dtype), None, base.stride, base.padding)
        if out.values:
            low = nn.functional.dropout(low, out.values, self.training)
        if out.ranks and self.training:
            kept = torch.rand(len(low), low.shape[1], 1, 1, device=low.device) > out.ranks
            low = low * kept / (1.0 - out.ranks)
        if self.scale != 1.0:
            low = low * self.scale
        return y + nn.functional.conv2d(low, self.lora_B.to(dtype))
