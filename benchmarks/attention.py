"""Attention on this computer's CPU in bfloat16: torch's kernel and the runner's plain products, time and error.

    python benchmarks/attention.py

Shapes are Z-Image's of 30 heads of 128 at 256 and 512 px, and those of the model of peers.py (8 heads). Both take
turns; seconds are medians of whole calls, error is the distance from float64 as a share of its length.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import normalize, scaled_dot_product_attention

from zdoctor.doctor.train.kernels.attention import KEPT, matmul_attention

SHAPES = ((8, 96), (8, 288), (8, 1024), (30, 288), (30, 512), (30, 1056))
WIDTH = 128
ROUNDS = 15


def operands(heads: int, tokens: int, dtype: torch.dtype) -> list[Tensor]:
    """Queries and keys of length one a channel, values, and the gradient of the output."""
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randn(1, tokens, heads, WIDTH, generator=generator) for _ in range(4)]
    normed = [normalize(x, dim=-1) * WIDTH**0.5 for x in drawn[:2]]
    return [x.bfloat16().to(dtype).transpose(1, 2) for x in (*normed, *drawn[2:])]


def run(attend: Callable[..., Tensor], given: list[Tensor]) -> tuple[float, float, list[Tensor]]:
    """Seconds forward and backward; the output and the three gradients."""
    *leaves, upon = given
    leaves = [leaf.detach().requires_grad_() for leaf in leaves]
    begin = time.perf_counter()
    output = attend(*leaves)
    middle = time.perf_counter()
    output.backward(upon)  # type: ignore[no-untyped-call]
    end = time.perf_counter()
    return middle - begin, end - middle, [output.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)]


def main() -> None:
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads; milliseconds forward + backward, and errors"
    )
    ways = {"kernel": scaled_dot_product_attention, "products": matmul_attention}
    for heads, tokens in SHAPES:
        exact = run(scaled_dot_product_attention, operands(heads, tokens, torch.float64))[2]
        given = operands(heads, tokens, torch.bfloat16)
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        errors = {}
        for _ in range(ROUNDS):
            for name, attend in ways.items():
                forward, backward, made = run(attend, given)
                found[name].append((forward, backward))
                errors[name] = [float((m.double() - e).norm() / e.norm()) for m, e in zip(made, exact, strict=True)]
        kept = heads * tokens * tokens * 2
        print(
            f"{heads} heads, {tokens} tokens" + ("" if kept <= KEPT else ": above the limit, so both are the kernel")
        )
        sums = {}
        for name, times in found.items():
            forward, backward = (statistics.median(part) * 1e3 for part in zip(*times, strict=True))
            sums[name] = forward + backward
            words = ", ".join(f"{error:.4f}" for error in errors[name])
            print(f"    {name:9} {forward:7.2f} + {backward:7.2f}   {words}")
        print(f"    products / kernel: {sums['products'] / sums['kernel']:.2f}")


if __name__ == "__main__":
    main()
