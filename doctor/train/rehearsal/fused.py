"""What a card computes by one kernel, and a device without data by several products that backward keeps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor


def _rms_norm(given: Tensor, shape: Sequence[int], weight: Tensor | None, eps: float | None) -> tuple[Tensor, Tensor]:
    """What it gives, and the number of each row that is kept beside what was given."""
    rows = given.shape[: given.dim() - len(shape)]
    whole = torch.float32 if given.dtype in (torch.float16, torch.bfloat16) else given.dtype
    return torch.empty_like(given), given.new_empty((*rows, *(1 for _ in shape)), dtype=whole)


def _rms_norm_backward(
    gradient: Tensor, given: Tensor, shape: Sequence[int], kept: Tensor, weight: Tensor | None, mask: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None]:
    of_weight = torch.empty_like(weight) if weight is not None and mask[1] else None
    return torch.empty_like(given) if mask[0] else None, of_weight


@contextmanager
def rms_norm_in_one_kernel() -> Iterator[None]:
    """Tensors without data are computed as by CUDA's kernel, which is given weights of the same type."""
    library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    try:
        for name, kernel in (("_fused_rms_norm", _rms_norm), ("_fused_rms_norm_backward", _rms_norm_backward)):
            # past Library.impl, which refuses what has other code
            library.m.impl(name, "Meta", kernel, False)  # type: ignore[union-attr]
        yield
    finally:
        library._destroy()  # type: ignore[no-untyped-call]
