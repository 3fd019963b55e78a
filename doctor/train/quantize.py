"""Eight-bit frozen Linears that a LoRA can train through.

A weight is stored per row as `codes` (int8, or float8 e4m3) and one float32 `scale`: weight = codes * scale. The
scale is rounded to a bfloat16 value, so multiplying it in bfloat16 loses nothing. Forward and backward multiply by
the codes and apply the scale to the (smaller) activations; nothing but the codes themselves is kept for backward.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

Kind = Literal["none", "int8", "float8"]

# Largest code, and the storage type.
FORMATS: dict[str, tuple[float, torch.dtype]] = {
    "int8": (127.0, torch.int8),
    "float8": (448.0, torch.float8_e4m3fn),
}


def stored(kind: Kind, shape: tuple[int, int]) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    """Type and shape of the codes and of the scale of a weight (out x in)."""
    return {"codes": (FORMATS[kind][1], shape), "scale": (torch.float32, shape[:1])}


def quantize_rows(weight: Tensor, kind: Kind) -> tuple[Tensor, Tensor]:
    """(codes, scale) of a float32 weight (out x in): codes like the weight, scale float32 of shape (out,)."""
    largest, dtype = FORMATS[kind]
    scale = (weight.abs().amax(dim=1) / largest).clamp_min(1e-12).to(torch.bfloat16).float()
    scaled = (weight / scale[:, None]).clamp_(-largest, largest)
    if kind == "int8":
        scaled = scaled.round_()
    return scaled.to(dtype), scale


def dequantize(codes: Tensor, scale: Tensor) -> Tensor:
    """The float32 weight that `codes` and `scale` stand for."""
    return codes.float() * scale[:, None]


class _Multiply(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, codes: Tensor, scale: Tensor) -> Tensor:
        ctx.save_for_backward(codes, scale)
        return nn.functional.linear(x, codes.to(x.dtype)) * scale.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, None, None]:
        codes, scale = ctx.saved_tensors  # read once: a checkpoint unpacks each saved tensor only once
        grad = grads[0] * scale.to(grads[0].dtype)
        return grad @ codes.to(grad.dtype), None, None


_multiply: Any = _Multiply.apply


class QuantizedLinear(nn.Module):
    """A frozen Linear in eight bits. Buffers: codes (out x in), scale (out,), bias (out,) or None."""

    codes: Tensor
    scale: Tensor
    bias: Tensor | None

    def __init__(self, codes: Tensor, scale: Tensor, bias: Tensor | None, in_features: int) -> None:
        super().__init__()
        self.out_features, self.in_features = codes.shape[0], in_features
        self.register_buffer("codes", codes)
        self.register_buffer("scale", scale)
        self.register_buffer("bias", bias)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = _multiply(x, self.codes, self.scale)
        return y if self.bias is None else y + self.bias

    def weight(self) -> Tensor:
        """The float32 weight this module multiplies by."""
        return dequantize(self.codes, self.scale)
