"""The kernel that makes weights of nf4's codes gives PyTorch's bits, and is not used where it does not."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import Tensor

from zdoctor.doctor.train.kernels import quantized_linear
from zdoctor.doctor.train.kernels.fused_nf4 import agree, fused, fused_on
from zdoctor.doctor.train.kernels.quantized_linear import QuantizedLinear, quantize_rows

CPU = torch.device("cpu")
plain = quantized_linear._from_codes


def off(codes: Tensor, scale: Tensor, levels: Tensor) -> Tensor:
    return plain(codes, scale, levels).nextafter(torch.tensor(0.0, dtype=levels.dtype))


def cut(codes: Tensor, scale: Tensor, levels: Tensor) -> Tensor:
    """As the interpreter makes bfloat16 of float32: it drops the bits behind instead of rounding."""
    if levels.dtype != torch.bfloat16:
        return plain(codes, scale, levels)
    exact = plain(codes, scale.bfloat16().float(), levels.float())  # 8 bits by 8
    return (exact.view(torch.int32) & ~0xFFFF).view(torch.float32).bfloat16()


def test_in_the_interpreter_it_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    kernel = fused()
    assert agree(kernel, cut, CPU) and not agree(kernel, plain, CPU)
    weight = torch.randn(24, 192, generator=torch.Generator().manual_seed(1))  # no whole number of programs
    codes, scale, _ = quantize_rows(weight, "nf4")
    for dtype in (torch.float16, torch.float32):
        pairs = quantized_linear._pairs(dtype, CPU)
        assert torch.equal(kernel(codes, scale, pairs), plain(codes, scale, pairs))
    assert (kernel(codes, scale, pairs) - weight).norm() < 0.1 * weight.norm()


def test_one_bit_tells() -> None:
    assert agree(plain, plain, CPU)
    assert not agree(off, plain, CPU)


def test_where_it_is_not_used_a_reason_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    assert fused_on(torch.device("cuda:7"), plain) == (None, "Triton is not installed")
    weight = torch.randn(4, 100)
    layer = QuantizedLinear(*quantize_rows(weight, "nf4"), None, 100)
    assert layer(torch.eye(100)).shape == (100, 4)  # rows that are no whole blocks
