"""Float16 trains without overflows on cards that have no bfloat16 (compute capability below 8).

Z-Image's activations are larger than float16 can hold (Tongyi-MAI/Z-Image#14). So everything is float32 but the two
things that take the time: the products of the blocks' Linears, and attention. Their operands are multiplied by powers
of two that follow from the operands themselves, row by row (attention: head by head), such that no sum in them can
leave float16, forward or backward. Nothing has to be guessed, kept or tried again, as with a scale of the loss.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from .attention import torch_attention
from .quantized_linear import FORMATS, QuantizedLinear, dequantize_nf4, outlier_values, put_outliers

# Float16 ends at 65504; operands are rounded to it after they are scaled.
MOST = 60000.0
# What brings the codes of a format to at most 1; float16 holds all of them exactly then, too.
TO_ONE = {dtype: 2.0 ** -math.ceil(math.log2(largest)) for largest, dtype in FORMATS.values()}


def multiply_in_float16(model: nn.Module) -> None:
    """Lets the quantized Linears of a model, whose activations are float32, multiply in float16."""
    for module in model.modules():
        if isinstance(module, QuantizedLinear):
            module.multiply = _product


def multiplies_in_float16(layer: QuantizedLinear) -> bool:
    return layer.multiply is _product


def scaled_matmul(x: Tensor, matrix: Tensor) -> Tensor:
    """Multiplies x (… x k, float32) by matrix (k x m, float16, entries up to 1) in float16; float32.

    A sum of products, or a part of it, is at most the sum of the row of x.
    """
    factor = _power(MOST / x.abs().sum(dim=-1, keepdim=True).clamp(1e-30, 3e38))
    return ((x * factor).half() @ matrix).float() / factor


def _power(x: Tensor) -> Tensor:
    """The largest power of two that is not above x."""
    return torch.exp2(torch.floor(torch.log2(x)))


def _matrix(codes: Tensor, scale: Tensor, outliers: Tensor | None, columns: int) -> tuple[Tensor, Tensor]:
    """The matrix (out x `columns`, float16, entries up to 1), and what its rows are still to be multiplied by."""
    if scale.dim() == 2:
        factor = _power(1.0 / scale.abs().amax(dim=1, keepdim=True).float())
        return dequantize_nf4(codes, scale * factor, columns, torch.float16), 1.0 / factor.flatten()
    if outliers is None:
        return codes, scale  # float16 already
    values = outlier_values(outliers).float()
    factor = _power(1.0 / values.abs().amax(dim=1, keepdim=True).clamp_min(1.0 / TO_ONE[codes.dtype]))
    return put_outliers(codes.half().mul_(factor), outliers, values * factor), scale / factor.flatten()


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, codes: Tensor, scale: Tensor, outliers: Tensor | None) -> Tensor:
        ctx.save_for_backward(codes, scale, outliers)
        ctx.columns = x.shape[-1]
        matrix, after = _matrix(codes, scale, outliers, ctx.columns)
        return scaled_matmul(x, matrix.t()) * after

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, None, None, None]:
        codes, scale, outliers = ctx.saved_tensors
        matrix, after = _matrix(codes, scale, outliers, ctx.columns)
        return scaled_matmul(grads[0] * after, matrix), None, None, None


class _Scales:
    """What the two ends of one attention know of each other: factors, each a number for a head."""

    value: Tensor  # of the values
    reach: Tensor  # how much larger than the gradient of the output a sum in the backward pass can be
    grad: Tensor  # of the gradients


def scaled_attention(query: Tensor, key: Tensor, value: Tensor, *args: Any, **options: Any) -> Tensor:
    """Computes attention of … x tokens x width, float32, in float16.

    Queries and keys must fit into float16, which the norms in front of attention see to.
    """
    scales = _Scales()
    operands = _enter(query, key, value, options.get("scale"), scales)
    output: Tensor = _leave(torch_attention(*operands, *args, **options), scales)
    return output


class _Enter(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, scale: float | None, scales: _Scales
    ) -> tuple[Tensor, Tensor, Tensor]:
        scales.value = _power(1.0 / _most(value))
        value = value * scales.value
        sides = torch.maximum(_longest(query), _longest(key)) * (scale or 1 / math.sqrt(query.shape[-1]))
        # Each key's gradient is a sum over the queries; that of the weights is bounded by twice the values' length.
        scales.reach = query.shape[-2] * (2 * _longest(value) * sides).clamp_min(1.0)
        ctx.scales = scales
        return query.half(), key.half(), value.half()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        scales = ctx.scales
        query, key, value = (grad.float() / scales.grad for grad in grads)
        return query, key, value * scales.value, None, None


class _Leave(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, output: Tensor, scales: _Scales) -> Tensor:
        ctx.scales = scales
        return output.float() / scales.value

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, None]:
        scales = ctx.scales
        grad = grads[0] / scales.value
        first = _power(1.0 / _most(grad))
        scales.grad = first * _power(MOST / scales.reach / _longest(grad * first).clamp_min(0.5))
        return (grad * scales.grad).half(), None


def _longest(x: Tensor) -> Tensor:
    """The norm of the longest row of each head."""
    norms: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return norms.amax(dim=-2, keepdim=True)


def _most(x: Tensor) -> Tensor:
    """The largest number of each head but for its sign, never 0."""
    return x.abs().amax(dim=(-2, -1), keepdim=True).clamp_min(1e-30)


_product: Any = _Product.apply
_enter: Any = _Enter.apply
_leave: Any = _Leave.apply
