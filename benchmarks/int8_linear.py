"""A frozen int8 Linear with its backward, ours beside torchao's weight-only one, at several numbers of tokens.

    python benchmarks/int8_linear.py [RUNS]

1536 x 1536 in bfloat16 on one thread, forward and the gradient of the input; each round runs each contender once, in
turn. Needs torchao (pip install torchao); it is no part of zdoctor.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any

import torch
from torch import nn

from zdoctor.doctor.train.kernels.quantized_linear import QuantizedLinear, quantize_rows

SIDE = 1536


def contenders() -> dict[str, tuple[Any, int]]:
    """Each with the bytes of its weight."""
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    torch.manual_seed(0)
    plain = nn.Linear(SIDE, SIDE, bias=False, dtype=torch.bfloat16).requires_grad_(False)
    made = quantize_rows(plain.weight.float(), "int8")
    other = nn.Sequential(nn.Linear(SIDE, SIDE, bias=False, dtype=torch.bfloat16).requires_grad_(False))
    quantize_(other, Int8WeightOnlyConfig())
    kept: Any = other[0].weight
    parts = [getattr(kept, name) for name in ("qdata", "scale", "tensor_impl") if hasattr(kept, name)]
    size = sum(part.nbytes for part in parts if isinstance(part, torch.Tensor))
    return {
        "bfloat16": (plain, plain.weight.nbytes),
        "ours": (QuantizedLinear(*made, None, SIDE), sum(part.nbytes for part in made if part is not None)),
        "torchao": (other, size),
    }


def seconds(model: Any, tokens: int) -> float:
    x = torch.randn(tokens, SIDE, dtype=torch.bfloat16, requires_grad=True)
    begin = time.perf_counter()
    model(x).sum().backward()
    return time.perf_counter() - begin


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    torch.set_num_threads(1)
    models = contenders()
    for tokens in (256, 1024, 4096):
        taken: dict[str, list[float]] = {name: [] for name in models}
        for round_ in range(runs + 1):
            for name, (model, _) in models.items():
                spent = seconds(model, tokens)
                if round_:
                    taken[name].append(spent)
        for name, times in taken.items():
            middle, low, high = (1000 * f(times) for f in (statistics.median, min, max))
            print(f"{tokens} tokens, {name}: {middle:.1f} ms ({low:.1f}, {high:.1f}), {models[name][1]} bytes")


if __name__ == "__main__":
    main()
