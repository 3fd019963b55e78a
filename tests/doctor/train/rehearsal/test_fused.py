"""rms_norm of tensors without data keeps what CUDA's kernel keeps: what it was given, and a number for each row."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from zdoctor.doctor.train.rehearsal.fused import rms_norm_in_one_kernel
from zdoctor.doctor.train.rehearsal.step import without_data

WIDTH = 64


def kept(dtype: torch.dtype = torch.bfloat16) -> tuple[int, Tensor]:
    """Bytes that backward of a norm of 16 rows keeps beside its weights, and its gradient."""
    given = torch.zeros(2, 8, WIDTH, dtype=torch.bfloat16, device="meta", requires_grad=True)
    weight, found = torch.ones(WIDTH, dtype=dtype, device="meta"), 0

    def keep(tensor: Tensor) -> Tensor:
        nonlocal found
        found += tensor.numel() * tensor.element_size() if tensor.shape != weight.shape else 0
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        out = torch.nn.functional.rms_norm(given, (WIDTH,), weight, 1e-5)
    torch.autograd.backward(out.sum())
    assert given.grad is not None
    return found, given.grad


def test_a_norm_keeps_what_it_was_given_and_a_number_for_each_row() -> None:
    with rms_norm_in_one_kernel():
        found, gradient = kept()
    assert found == 16 * (2 * WIDTH + 4)
    assert (gradient.shape, gradient.dtype) == ((2, 8, WIDTH), torch.bfloat16)


def test_weights_of_another_type_have_no_such_kernel() -> None:
    """torch/aten/src/ATen/native/layer_norm.cpp: several products then, on every device."""
    with rms_norm_in_one_kernel():
        assert kept(torch.float32)[0] > 16 * (2 * WIDTH + 4)


@pytest.mark.parametrize("within", [rms_norm_in_one_kernel, without_data])  # in which every step is rehearsed
def test_it_is_only_so_within(within: Callable[[], AbstractContextManager[None]]) -> None:
    before = kept()[0]
    with within():
        assert kept()[0] == 16 * (2 * WIDTH + 4) < before
    assert kept()[0] == before
