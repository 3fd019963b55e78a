"""What a card computes by one kernel, and a device without data by several products that backward keeps.

A card has had this kernel since PyTorch 2.9 (ATen/ops/_fused_rms_norm_native.h of the wheels 2.8.0 and 2.9.0).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor


def _rms_norm(given: Tensor, shape: Sequence[int], weight: Tensor | None, eps: float | None) -> tuple[Tensor, Tensor]:
    """What it gives, and the number of each row that is kept beside what was given."""
    rows = given.shape[: given.dim() - len(shape)]
    whole = torch.float32 if given.dtype in (torch.float16, torch.bfloat16) else given.dtype
    return given.new_empty(given.shape), given.new_empty((*rows, *(1 for _ in shape)), dtype=whole)


def _rms_norm_backward(
    gradient: Tensor, given: Tensor, shape: Sequence[int], kept: Tensor, weight: Tensor | None, mask: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None]:
    of_weight = torch.empty_like(weight) if weight is not None and mask[1] else None
    return given.new_empty(given.shape) if mask[0] else None, of_weight


@contextmanager
def rms_norm_in_one_kernel(*devices: str) -> Iterator[None]:
    """Tensors without data, or of `devices`, are computed as by CUDA's kernel, which takes weights of one type."""
    library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    try:
        for device in devices or ("Meta",):
            # past Library.impl, which refuses what has other code
            library.m.impl("_fused_rms_norm", device, _rms_norm, False)  # type: ignore[union-attr]
            library.m.impl("_fused_rms_norm_backward", device, _rms_norm_backward, False)  # type: ignore[union-attr]
        yield
    finally:
        library._destroy()  # type: ignore[no-untyped-call]
