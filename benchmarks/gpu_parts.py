"""The parts of gpu.py that ask PyTorch itself: what a card does, whether the runner's kernels are right there.

Each returns its figures by name. With `device` cpu they run in small sizes, which tells of mistakes and nothing else.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Literal

import contenders
import torch
from torch import nn

from zdoctor.doctor.families.zimage.record import ZIMAGE
from zdoctor.doctor.train.kernels import quantized_linear
from zdoctor.doctor.train.kernels.quantized_linear import QuantizedLinear, dequantize_nf4, quantize_rows
from zdoctor.doctor.train.network.lora import add_network, lora_targets
from zdoctor.doctor.train.step.optimizer import make_optimizer

Figures = dict[str, Any]
Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
REPEATS = 10
TFLOP, GB = 1e12, 1e9
# Lines of the config of contenders.py, with what stands in their place.
WAYS: dict[str, tuple[str, dict[str, str]]] = {
    "float32": ("none", {"dtype: bf16\n        cache": "dtype: fp32\n        cache"}),
    "bf16": ("none", {}),
    "int8": ("int8", {}),
    "float8": ("float8", {}),
    "nf4": ("uint4", {}),
    "float16": ("int8", {"dtype: bf16\n        cache": "dtype: fp16\n        cache"}),
    "int8, offloaded": ("int8", {"qtype: int8": "qtype: int8\n        layer_offloading: true"}),
    "bf16, compiled": ("none", {"qtype: none": "qtype: none\n        compile: true"}),
}
TOLERANCE = {"float32": 1e-3}  # of a loss; in 16 bits a card sums in another order
IN_16_BITS = 0.03
WRONG = 0.01  # of a product in bfloat16


def seconds(work: Callable[[], Any], device: str) -> float:
    """The median of some calls, each waited for."""
    wait: Callable[[], Any] = torch.cuda.synchronize if device == "cuda" else lambda: None
    work()
    wait()
    found = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        work()
        wait()
        found.append(time.perf_counter() - begin)
    return statistics.median(found)


def card(device: str) -> Figures:
    """What products and copies of this card reach, whatever its makers say."""
    side = 8192 if device == "cuda" else 64
    found: Figures = {}
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        one = torch.randn(side, side, device=device).to(dtype)
        name = str(dtype).removeprefix("torch.")
        found[f"{name} TFLOP/s"] = 2 * side**3 / seconds(lambda one=one: one @ one, device) / TFLOP  # type: ignore[misc]
    values = torch.empty(side * side, device=device)
    found["copy GB/s"] = 2 * values.nbytes / seconds(values.clone, device) / GB
    host = torch.empty(side * side)
    found["host to card GB/s"] = host.nbytes / seconds(lambda: host.to(device, copy=True), device) / GB
    if device == "cuda":
        pinned = host.pin_memory()
        found["pinned to card GB/s"] = (
            host.nbytes / seconds(lambda: pinned.to(device, non_blocking=True), device) / GB
        )
        found["attention"] = attention_kernels()
    return found


def attention_kernels() -> list[str]:
    """Those that take the blocks' attention in bfloat16 forward and backward."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    found = []
    one = torch.randn(1, 30, 1024, 128, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    for kind in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):
        try:
            with sdpa_kernel(kind):
                nn.functional.scaled_dot_product_attention(one, one, one).sum().backward()
            found.append(kind.name.lower())
        except RuntimeError:
            continue
    return found


def kernels(device: str) -> Figures:
    """A frozen Linear of Z-Image with its backward in each format: error beside float64, time beside bfloat16."""
    side, tokens = (3840, 4608) if device == "cuda" else (128, 64)
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(side, side, generator=generator)
    given = torch.randn(tokens, side, generator=generator).bfloat16()
    back = torch.randn(tokens, side, generator=generator).bfloat16()
    found: Figures = {}

    def both(layer: nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
        x = given.to(device, copy=True).requires_grad_()
        y = layer(x)
        y.backward(back.to(device))
        assert x.grad is not None
        return y.detach(), x.grad

    plain = nn.Linear(side, side, bias=False).requires_grad_(False).to(device, torch.bfloat16)
    base = seconds(lambda: both(plain), device)
    for kind in ("int8", "float8", "nf4"):
        layer = QuantizedLinear(*quantize_rows(weight.clone(), kind), None, side)
        exact = layer.weight().double()
        wanted = given.double() @ exact.t(), back.double() @ exact
        layer = layer.to(device)
        for name, got, right in zip(("forward", "backward"), both(layer), wanted, strict=True):
            error = ((got.double().cpu() - right).norm() / right.norm()).item()
            found[f"{kind} {name} error"] = error
            assert error < WRONG, f"{kind} {name}: {error}"
        found[f"{kind} / bfloat16 time"] = seconds(lambda layer=layer: both(layer), device) / base  # type: ignore[misc]
    codes, scale = (part.to(device) for part in quantize_rows(weight, "nf4")[:2])
    spent = seconds(lambda: dequantize_nf4(codes, scale, side, torch.bfloat16), device)
    found["nf4 rebuilt, GB/s written and read"] = (codes.nbytes + scale.nbytes + 2 * weight.numel()) / spent / GB
    if device == "cuda":
        found["nf4 not by one kernel because"] = quantized_linear.why_not_fused(torch.device("cuda", 0)) or "it is"
    return found


def eight_bits(device: str) -> Figures:
    """Products of 8 bits by 8 bits, which the runner does not make: their error beside a column that is larger.

    Each row of the activations and of the gradients is brought to codes, too. That column's weights are 0, so it
    changes nothing of the exact product. Beside them the runner's own, whose activations stay bfloat16.
    """
    return {**_eight_bits("int8", _by_int8, device), **_eight_bits("float8", _by_float8, device)}


def _eight_bits(kind: Literal["int8", "float8"], multiply: Product, device: str) -> Figures:
    side, tokens = (3840, 4608) if device == "cuda" else (128, 64)
    generator = torch.Generator().manual_seed(0)
    weight, given, back = (torch.randn(rows, side, generator=generator) for rows in (side, tokens, tokens))
    weight[:, 0] = 0.0
    codes, scale = (part.to(device) for part in quantize_rows(weight.clone(), kind)[:2])  # zeros for outliers
    layer, columns, given = QuantizedLinear(codes, scale, None, None, side), codes.t(), given.to(device)
    exact, found = layer.weight().double(), Figures()
    for outlier in (1.0, 1e2, 1e4):
        x = given.clone()
        x[:, 0] *= outlier
        right = x.double() @ exact.t()
        found[f"{kind} runner, outlier {outlier:g}"] = _error(layer(x.bfloat16()), right)
        found[f"{kind} both, outlier {outlier:g}"] = _error(multiply(x, columns) * scale, right)
    grad = back.to(device) * scale
    found[f"{kind} both, gradient"] = _error(multiply(grad, codes), grad.double() @ codes.double())
    half, other = given.bfloat16(), weight.bfloat16().to(device)
    base = seconds(lambda: half @ other.t(), device)
    found[f"{kind} both / bfloat16 time"] = seconds(lambda: multiply(given, columns), device) / base
    return found


def _error(found: torch.Tensor, exact: torch.Tensor) -> float:
    return ((found.double() - exact).norm() / exact.norm()).item()


def _by_int8(x: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    by = x.abs().amax(dim=1, keepdim=True) / 127.0
    return torch._int_mm((x / by).round().to(torch.int8), matrix).float() * by


def _by_float8(x: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    by = (x.abs().amax(dim=1, keepdim=True) / 448.0).float()
    columns = matrix.t().contiguous().t()  # cuBLAS has it in this order only, so a gradient copies the weights
    one = torch.ones(1, columns.shape[1], device=x.device)
    codes = (x / by).to(torch.float8_e4m3fn)
    return torch._scaled_mm(codes, columns, scale_a=by, scale_b=one, out_dtype=torch.bfloat16).float()


def losses(folder: Path, device: str, steps: int) -> Figures:
    """Each way trained on the card and on the CPU, all at once, in processes of their own."""
    places = ["cpu"] if device == "cpu" else ["cpu", device]
    ways = ["float32", "nf4"] if device == "cpu" else list(WAYS)
    kept = {
        (way, place): folder / "losses" / f"{number}-{place}" for number, way in enumerate(ways) for place in places
    }
    with ThreadPoolExecutor(max(2, (os.cpu_count() or 2) // 2)) as pool:
        runs = {key: pool.submit(_losses, folder, *key, place, steps) for key, place in kept.items()}
    found: Figures = {}
    for way in ways:
        here, *there = (runs[way, place].result() for place in places)
        if isinstance(here, str) or any(isinstance(one, str) for one in there):
            found[way] = next(one for one in (here, *there) if isinstance(one, str))
            continue
        most = max((abs(a - b) / a for one in there for a, b in zip(here, one, strict=True)), default=0.0)
        found[way] = {"largest difference": most, "right": most <= TOLERANCE.get(way, IN_16_BITS)}
    return found


def _losses(folder: Path, way: str, device: str, place: Path, steps: int) -> list[float] | str:
    """The losses of a run, or its last words."""
    place.mkdir(parents=True)
    qtype, changes = WAYS[way]
    contender = contenders.ours(folder, steps, qtype, place / "kept", device, 64, changes)
    environment = {**os.environ, "HOME": str(place), "ZDOCTOR_CACHE": str(place / "kept"), "HF_HUB_OFFLINE": "1"}
    environment |= {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(contender.command(place), cwd=place, env=environment, capture_output=True, text=True)
    lines = (place / "out/peer/losses.jsonl").read_text().splitlines() if done.returncode == 0 else []
    found = [float(one["loss"]) for one in map(json.loads, lines) if "loss" in one]
    return found if len(found) == steps else f"{device}: {(done.stdout + done.stderr)[-300:]}"


def tests(device: str) -> Figures:
    """The suite's own runs, each family and way, on the card."""
    file = Path(__file__).parents[1] / "tests/doctor/train/test_card.py"
    words = [sys.executable, "-m", "pytest", str(file), "-q", "-p", "no:cacheprovider", "--no-header", "-n", "4"]
    chosen = ["--collect-only"] if device == "cpu" else []
    done = subprocess.run([*words, *chosen], capture_output=True, text=True, cwd=file.parents[3])
    lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR", "E   "))]
    return {"right": done.returncode == 0, "last line": (done.stdout.splitlines() or [""])[-1], "lines": lines[:20]}


def plain(config: Mapping[str, Any], device: str, side: int, steps: int) -> Figures:
    """A loop of diffusers' class in bfloat16 with the same LoRA, its blocks checkpointed and compiled."""
    from diffusers.models.transformers.transformer_z_image import ZImageTransformer2DModel
    from torch.utils.checkpoint import checkpoint

    from zdoctor.doctor.model.recipe import Network

    make: Any = ZImageTransformer2DModel
    with torch.device(device):
        torch.set_default_dtype(torch.bfloat16)
        model = make(**config).requires_grad_(False)
        torch.set_default_dtype(torch.float32)
    network = add_network(model, lora_targets(model), Network(rank=16, alpha=16.0), 0)
    trained = [value for module in network.values() for value in module.parameters() if value.requires_grad]
    again = partial(checkpoint, use_reentrant=False)
    model.enable_gradient_checkpointing(gradient_checkpointing_func=again)
    if device == "cuda":
        for block in model.get_submodule(ZIMAGE.blocks[-1]):
            block.compile()
    optimizer = make_optimizer("adamw", {}, 1e-4, trained, torch.device(device), print)
    images = [torch.randn(16, 1, side // 8, side // 8, device=device, dtype=torch.bfloat16)]
    texts = [torch.randn(32, config["cap_feat_dim"], device=device, dtype=torch.bfloat16)]
    taken = []
    for _ in range(steps):
        begin = time.perf_counter()
        out = model(images, torch.tensor([0.5], device=device), texts, return_dict=False)[0]
        loss = torch.stack([one.float() for one in out]).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
        taken.append(time.perf_counter() - begin)
    peak = torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else 0.0
    return {"s a step": statistics.median(taken[3:] or taken), "GiB allocated": peak, "s of the first": taken[0]}
