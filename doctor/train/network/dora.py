"""A DoRA trains how long each row of a Linear's weight is apart from where it points."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...families.network import MAGNITUDE
from .lora_linear import Dropout, LoraLinear, bias_of, frozen_weight


class DoraLinear(LoraLinear):
    """A Linear whose rows, with a LoRA added, get the lengths of `lora_magnitude_vector` (out,) while `active`.

    As in peft and ai-toolkit gradients take the rows' own lengths for constants (section 4.3 of the paper).
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
        super().__init__(base, shape, rank, dropout, generator, scale, deviation)
        self.register_parameter(MAGNITUDE, nn.Parameter(torch.linalg.vector_norm(frozen_weight(base), dim=1)))

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        if not self.active:
            return y
        with torch.no_grad():
            weight = torch.addmm(frozen_weight(self.base), self.lora_B, self.lora_A, alpha=self.scale)
            length = torch.linalg.vector_norm(weight, dim=1)
        # As the difference from 1, of which bfloat16 has more digits than of what is near it.
        longer = (self.get_parameter(MAGNITUDE) / length - 1.0).to(y.dtype)
        bias = bias_of(self.base)
        out: Tensor = y + longer * (y if bias is None else y - bias)
        return out
