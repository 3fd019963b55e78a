"""An OFT turns what a Linear gives, block by block, by trained rotations."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..weights.materialize import device_of
from .lora_linear import bias_of


class OftLinear(nn.Module):
    """A frozen Linear whose outputs, but for the bias, are turned while `active`: `oft_blocks` (count x size x size).

    Each rotation is Cayley's (1 + Q) / (1 - Q) of the skew matrix Q that `skew` makes of its block.
    """

    def __init__(self, base: nn.Module, shape: tuple[int, int], count: int, constraint: float) -> None:
        super().__init__()
        size = shape[0] // count
        self.base = base
        self.active = True
        self.constraint = constraint
        self.oft_blocks = nn.Parameter(torch.zeros(count, size, size, device=device_of(base)))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.base(x)
        if not self.active:
            return y
        q = skew(self.oft_blocks, self.constraint)
        count, size, _ = q.shape
        # the rotation less 1: what it changes, of which bfloat16 has more digits
        turned = 2.0 * torch.linalg.solve(torch.eye(size, device=q.device) - q, q)
        bias = bias_of(self.base)
        blocks = (y if bias is None else y - bias).view(*y.shape[:-1], count, size)
        return y + torch.einsum("...kn,knm->...km", blocks, turned.to(y.dtype)).flatten(-2)


def skew(blocks: Tensor, constraint: float) -> Tensor:
    """Returns each block less its transpose, all together of a norm of at most `constraint` an output."""
    q = blocks - blocks.transpose(1, 2)
    norm = torch.linalg.vector_norm(q)
    most = constraint * blocks.shape[0] * blocks.shape[1]
    bounded: Tensor = q * ((norm.clamp(max=most) + 1e-8) / (norm + 1e-8))
    return bounded
