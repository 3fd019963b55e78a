"""Errors and time of the runner's formats beside torchao, quanto and bitsandbytes, on the same weights.

python benchmarks/quantization.py      beside torchao, optimum-quanto and bitsandbytes, in a place of their own
python benchmarks/quantization.py sdnq [ROWS COLUMNS]     beside SDNQ, with its source or package on PYTHONPATH
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from zdoctor.doctor.train.kernels.quantized_linear import QuantizedLinear, quantize_rows, storage_of
from zdoctor.doctor.train.weights.materialize import PIECE

ROWS, COLUMNS = map(int, sys.argv[2:4] or (512, 2048))


def weights() -> Iterator[tuple[str, Tensor]]:
    """Uniform, normal and heavy-tailed ones, and a channel that is 30 times larger."""
    draw = torch.Generator().manual_seed(1)
    size = (ROWS, COLUMNS)
    yield "uniform", torch.rand(size, generator=draw) * 2 - 1
    yield "normal", torch.randn(size, generator=draw)
    squares = sum(torch.randn(size, generator=draw).square() for _ in range(3))
    yield "Student's t, 3 degrees", torch.randn(size, generator=draw) / (squares / 3) ** 0.5
    half = torch.rand(size, generator=draw) - 0.5
    yield "Laplace", -half.sign() * torch.log1p(-2 * half.abs().clamp(max=0.4999999))
    ratio = torch.randn(size, generator=draw) / torch.randn(size, generator=draw)
    yield "Cauchy, cut off at 200", ratio.clamp(-200, 200)
    outlier = torch.randn(size, generator=draw)
    outlier[:, 5] *= 30
    yield "normal, one channel 30 times larger", outlier


def torchao(config: str) -> Callable[[Tensor], Tensor]:
    def made(weight: Tensor) -> Tensor:
        import torchao.quantization as package  # type: ignore[import-not-found, unused-ignore] # pyright: ignore

        linear = _linear(weight)
        package.quantize_(linear, getattr(package, config)())
        stored: Any = linear.weight
        return stored.dequantize().float()  # type: ignore[no-any-return]

    return made


def quanto(kind: str) -> Callable[[Tensor], Tensor]:
    def made(weight: Tensor) -> Tensor:
        import optimum.quanto as package  # type: ignore[import-not-found, unused-ignore] # pyright: ignore

        model: Any = nn.Sequential(_linear(weight))
        package.quantize(model, weights=getattr(package, kind))
        package.freeze(model)
        return model[0].weight.dequantize().float()  # type: ignore[no-any-return]

    return made


def bitsandbytes(weight: Tensor) -> Tensor:
    import bitsandbytes.functional as package  # type: ignore[import-not-found, unused-ignore] # pyright: ignore

    codes, state = package.quantize_4bit(weight.clone(), blocksize=64, quant_type="nf4")
    return package.dequantize_4bit(codes, state).float()  # type: ignore[no-any-return]


PEERS: dict[Any, tuple[Callable[[Tensor], Tensor], ...]] = {
    "int8": (torchao("Int8WeightOnlyConfig"), quanto("qint8")),
    "float8": (torchao("Float8WeightOnlyConfig"), quanto("qfloat8")),
    "nf4": (bitsandbytes,),
}


# How SDNQ may store weights in as many bits: its formats, by row or, as it does unless told (0), in groups.
OF_SDNQ: dict[Any, tuple[tuple[str, int], ...]] = {
    "int8": (("int8", -1), ("int8", 0), ("uint8", -1), ("uint8", 0)),
    "float8": (("float8_e4m3fn", -1), ("float8_e4m3fn", 0)),
    "nf4": (("int4", 0), ("uint4", 0), ("float4_e2m1fn", 0)),
}


def sdnq(weight: Tensor, dtype: str, group: int) -> tuple[Tensor, float]:
    """The weight as it is stored, and bits a number."""
    from sdnq.quantizer import (  # type: ignore[import-not-found, unused-ignore] # pyright: ignore
        sdnq_quantize_layer_weight,
    )

    made: Any = sdnq_quantize_layer_weight
    restore, stored = made(weight.clone(), layer_class_name="Linear", weights_dtype=dtype, group_size=group)
    size = sum(one.nbytes for one in stored.values() if one is not None)
    return restore(**stored, skip_compile=True, dtype=torch.float32).float(), 8 * size / weight.numel()


def beside_sdnq() -> None:
    for name, weight in weights():
        for kind, ways in OF_SDNQ.items():
            own = (ours(weight, kind) - weight).norm().item()
            told: list[str] = []
            for dtype, group in ways:
                theirs, bits = sdnq(weight, dtype, group)
                how, share = "by row" if group else "in groups", own / (theirs - weight).norm().item()
                told.append(f"{dtype} {how} ({bits:.3f} bits) {share:.4f}")
            size = 8 * sum(math.prod(shape) * of.itemsize for of, shape in storage_of(kind, (ROWS, COLUMNS)).values())
            what = f"{name}: {kind} ({size / weight.numel():.3f} bits) {own / weight.norm().item():.6f}"
            print(f"{what}, times that of {', '.join(told)}", flush=True)


def _linear(weight: Tensor) -> nn.Linear:
    linear = nn.Linear(COLUMNS, ROWS, bias=False)
    linear.weight.data = weight.clone()
    return linear


def ours(weight: Tensor, kind: Any) -> Tensor:
    return QuantizedLinear(*quantize_rows(weight.clone(), kind), None, COLUMNS).weight()


def main() -> None:
    torch.set_num_threads(1)
    if "sdnq" in sys.argv:
        beside_sdnq()
        return
    for name, weight in weights():
        shares: list[str] = []
        for kind, peers in PEERS.items():
            best = min((peer(weight) - weight).norm().item() for peer in peers)
            own = (ours(weight, kind) - weight).norm().item()
            length = weight.norm().item()
            shares.append(f"{kind} {own / length:.6f} ({best / length:.6f}), {own / best:.4f}")
        print(f"{name}: {'; '.join(shares)}", flush=True)
    piece = torch.randn(PIECE["cpu"] // 3072, 3072)
    for kind in PEERS:
        times: list[float] = []
        for _ in range(50):
            begin = time.perf_counter()
            quantize_rows(piece.clone(), kind)
            times.append(time.perf_counter() - begin)
        print(f"{kind}: {min(times) / piece.numel() * 1e9:.2f} ns a weight, one thread")


if __name__ == "__main__":
    main()
