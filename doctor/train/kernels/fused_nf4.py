"""nf4's weights are made from their codes by one kernel of Triton, where it gives what PyTorch's kernels give.

Those read and write 10.5 bytes a weight in three passes, this one 2.6 in one. It is proved in Triton's interpreter
(the tests), and used only on a card on which it has given the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

# From codes (rows x bytes), scale (rows x blocks) and the two levels of each byte (512 x 2, the upper half where the
# scale is negative) to weights (rows x whole blocks) in the dtype of the levels.
Dequantize = Callable[[Tensor, Tensor, Tensor], Tensor]
WEIGHTS = 1024  # that one program makes


@cache
def fused_on(device: torch.device, plain: Dequantize) -> tuple[Dequantize | None, str]:
    """Returns the kernel, or None and why it is not used on this device instead of the `plain` one."""
    try:
        kernel = fused()
        return (kernel, "") if agree(kernel, plain, device) else (None, "it gives other numbers here")
    except ImportError:
        return None, "Triton is not installed"
    except Exception as error:  # of a compiler that is not there, a card that it does not know, a driver
        return None, f"it does not work here ({type(error).__name__})"


def fused() -> Dequantize:
    """Returns the kernel. Raises ImportError without Triton."""
    import triton  # type: ignore[import-not-found,unused-ignore]
    from triton import language as tl  # type: ignore[import-not-found,unused-ignore]

    @triton.jit  # type: ignore[untyped-decorator,unused-ignore]
    def rebuild(codes, scale, levels, weight, count, BLOCK: tl.constexpr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
        dtype = levels.dtype.element_ty
        at = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
        there = at < count
        byte = tl.load(codes + at // 2, mask=there, other=0).to(tl.int32)
        times = tl.load(scale + at // BLOCK, mask=there, other=0.0).to(tl.float32)
        level = tl.load(levels + tl.where(times < 0, 512, 0) + 2 * byte + at % 2).to(tl.float32)
        tl.store(weight + at, (level * times).to(dtype), mask=there)

    kernel: Any = rebuild

    def run(codes: Tensor, scale: Tensor, levels: Tensor) -> Tensor:
        weight = torch.empty(codes.shape[0], 2 * codes.shape[1], dtype=levels.dtype, device=codes.device)
        count, block, scale = weight.numel(), weight.numel() // scale.numel(), scale.to(levels.dtype)
        kernel[(triton.cdiv(count, WEIGHTS),)](codes, scale, levels, weight, count, BLOCK=block, SIZE=WEIGHTS)
        return weight

    return run


def agree(one: Dequantize, other: Dequantize, device: torch.device) -> bool:
    """Tells whether both give the same bits: of each byte, by scales of many sizes and both signs, in each dtype."""
    generator = torch.Generator().manual_seed(0)
    codes = torch.arange(256, dtype=torch.uint8).repeat(21).view(42, 128).to(device)
    signs = torch.tensor([1.0, -1.0, -1.0]).repeat(56).view(42, 4)
    scale = (torch.exp2(torch.randn(42, 4, generator=generator) * 4) * signs).to(device)
    levels = torch.linspace(-1.0, 1.0, 1024).pow(3).view(512, 2).to(device)
    return all(
        torch.equal(one(codes, kept, levels.to(dtype)), other(codes, kept, levels.to(dtype)))
        for dtype in (torch.bfloat16, torch.float16, torch.float32)
        for kept in (scale.bfloat16(), scale)
    )
