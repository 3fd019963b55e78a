"""Eight-bit storage keeps the weight within its format's error, and gradients through it are exact."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from zdoctor.doctor.train.quantize import Kind, QuantizedLinear, dequantize, quantize_rows

# Largest error of a weight: relative to the largest weight of its row (int8), to itself (float8: 3 mantissa bits).
INT8_STEP = 1 / 127
FLOAT8_STEP = 2**-3


def weight(rows: int = 48, columns: int = 64) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    value = torch.randn(rows, columns, generator=generator)
    value[3] *= 1000.0  # an outlier row must not spoil the others
    value[5] = 0.0
    return value


def test_int8_is_within_one_half_step_of_each_row() -> None:
    value = weight()
    codes, scale = quantize_rows(value, "int8")
    assert codes.dtype == torch.int8
    error = (dequantize(codes, scale) - value).abs().amax(dim=1)
    assert (error <= value.abs().amax(dim=1) * INT8_STEP * 0.51).all()


def test_float8_keeps_three_bits_of_every_weight() -> None:
    value = weight()
    codes, scale = quantize_rows(value, "float8")
    assert codes.dtype == torch.float8_e4m3fn
    error = (dequantize(codes, scale) - value).abs()
    smallest = scale[:, None] * 2**-9  # below that lie the denormals of the format
    assert (error <= torch.maximum(value.abs() * FLOAT8_STEP / 2 * 1.01, smallest)).all()


def test_scales_are_exact_in_bfloat16() -> None:
    _, scale = quantize_rows(weight(), "int8")
    assert torch.equal(scale, scale.bfloat16().float())


@pytest.mark.parametrize("kind", ["int8", "float8"])
@pytest.mark.parametrize("bias", [True, False])
def test_output_and_gradient_are_those_of_the_dequantized_linear(kind: Kind, bias: bool) -> None:
    torch.manual_seed(1)
    codes, scale = quantize_rows(weight(), kind)
    extra = torch.randn(48) if bias else None
    ours = QuantizedLinear(codes, scale, extra, 64)
    x = torch.randn(2, 7, 64, requires_grad=True)
    y = x.detach().clone().requires_grad_(True)
    push = torch.randn(2, 7, 48)
    out = ours(x)
    reference = nn.functional.linear(y, ours.weight(), extra)
    torch.testing.assert_close(out, reference, rtol=1e-5, atol=1e-3)
    out.backward(push)
    reference.backward(push)  # type: ignore[no-untyped-call]
    torch.testing.assert_close(x.grad, y.grad, rtol=1e-5, atol=1e-3)


def test_gradcheck_in_double_precision() -> None:
    codes, scale = quantize_rows(weight(6, 5), "int8")
    ours = QuantizedLinear(codes, scale, None, 5)
    x = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(ours, (x,))


def test_checkpointing_changes_no_gradient() -> None:
    ours = QuantizedLinear(*quantize_rows(weight(64, 64), "int8"), None, 64)
    x = torch.randn(3, 64, requires_grad=True)
    y = x.detach().clone().requires_grad_(True)
    ours(ours(x)).sum().backward()
    again = checkpoint(lambda v: ours(ours(v)), y, use_reentrant=False)
    assert isinstance(again, Tensor)
    again.sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None and y.grad is not None
    assert torch.equal(x.grad, y.grad)


def test_weights_are_buffers_that_take_one_byte_each() -> None:
    ours = QuantizedLinear(*quantize_rows(weight(), "int8"), None, 64)
    assert not list(ours.parameters())
    assert ours.codes.nbytes == 48 * 64
