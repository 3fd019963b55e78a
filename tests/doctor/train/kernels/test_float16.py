"""The float16 path stays finite where plain float16 overflows, and near to float32, forward and backward."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from zdoctor.doctor.train.families import zimage
from zdoctor.doctor.train.kernels.float16 import _matrix, multiply_in_float16, scaled_attention, scaled_matmul
from zdoctor.doctor.train.kernels.quantized_linear import Quantization, Quantized, QuantizedLinear, quantize_rows
from zdoctor.doctor.train.network.lora import add_network, lora_targets, trainable_parameters
from zdoctor.doctor.train.transformer.load_transformer import build_empty_transformer, fill_transformer
from zdoctor.doctor.train.transformer.transformer_blocks import use_float16

from ..patient import run_with

CPU = torch.device("cpu")
# The rounding of float16.
HALF_ERROR = 2.0**-11


def model_of(folder: Path, kind: Quantization, dtype: torch.dtype, *, half: bool, wild: float) -> nn.Module:
    """The tiny model; with `wild` its values, attention outputs and gated activations are so many times larger."""
    model = build_empty_transformer(folder / "transformer")
    if half and kind == "none":
        kind = "float16"
    fill_transformer(model, folder / "transformer", quantization=kind, adapter={}, dtype=dtype, device=CPU)
    for name, module in model.named_modules():
        if name.endswith(("to_v", "w3")):
            tensor = module.scale if isinstance(module, QuantizedLinear) else module.get_parameter("weight")
            tensor.mul_(wild)
    return model


def results(
    model: nn.Module, dtype: torch.dtype, *, half: bool, size: float = 1.0
) -> tuple[Tensor, dict[str, Tensor]]:
    """The output and the gradient of every LoRA tensor, for a loss multiplied by `size`."""
    shapes = lora_targets(model)
    if half:
        use_float16(model)
    network = add_network(model, shapes, run_with(rank=4).recipe.network, 0)
    for parameter in trainable_parameters(network, zimage.RECORD.lora_prefix).values():
        parameter.data = parameter.data.to(dtype)
    parameters = trainable_parameters(network, zimage.RECORD.lora_prefix)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for key, parameter in parameters.items():
            if "lora_B" in key:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 1e-3)
    noisy = torch.randn(2, 16, 8, 8, generator=generator).to(dtype)
    texts = [{"states": torch.randn(length, 32, generator=generator)} for length in (9, 14)]
    output = zimage.predict(model, noisy, torch.tensor([0.3, 0.8]), texts)
    (output.square().mean() * size).backward()  # type: ignore[no-untyped-call]
    return output.detach(), {key: p.grad / size for key, p in parameters.items() if p.grad is not None}


def miss(found: Tensor, exact: Tensor) -> float:
    return float((found - exact).norm() / exact.norm())


@pytest.mark.parametrize("kind", ["none", "int8", "float8", "nf4"])
def test_activations_that_overflow_plain_float16(tiny: Path, kind: Quantization) -> None:
    exact, gradients = results(model_of(tiny, kind, torch.float32, half=False, wild=1e5), torch.float32, half=False)
    plain, _ = results(model_of(tiny, kind, torch.float16, half=False, wild=6e4), torch.float16, half=False)
    assert not torch.isfinite(plain).all()
    found, made = results(model_of(tiny, kind, torch.float32, half=True, wild=1e5), torch.float32, half=True)
    assert HALF_ERROR / 8 < miss(found, exact) < 4 * HALF_ERROR  # it was float16 indeed
    assert made.keys() == gradients.keys()
    for key, gradient in gradients.items():
        assert miss(made[key], gradient) < 20 * HALF_ERROR, key


@pytest.mark.parametrize("size", [1e-12, 1e12])
def test_the_size_of_the_loss_does_not_matter(tiny: Path, size: float) -> None:
    """In plain float16 the gradients would be lost or overflow."""
    _, usual = results(model_of(tiny, "int8", torch.float32, half=True, wild=1.0), torch.float32, half=True)
    _, other = results(
        model_of(tiny, "int8", torch.float32, half=True, wild=1.0), torch.float32, half=True, size=size
    )
    for key, gradient in usual.items():
        assert miss(other[key], gradient) < 4 * HALF_ERROR, key


@pytest.mark.parametrize("size", [1e-25, 1.0, 1e25])
def test_the_worst_product_fits(size: float) -> None:
    """All terms of one sum alike and as large as they can be, one of them alone, and a row of zeros."""
    alone = torch.eye(1, 512)[0]
    x = torch.stack([torch.full((512,), size), size * alone, torch.zeros(512)])
    matrix = torch.ones(512, 3).half()
    torch.testing.assert_close(scaled_matmul(x, matrix), x @ matrix.float(), rtol=HALF_ERROR, atol=0)


@pytest.mark.parametrize("kind", ["int8", "float8", "nf4", "float16"])
def test_eight_bits_are_exact_in_float16(kind: Quantization) -> None:
    weight = torch.randn(64, 256, generator=torch.Generator().manual_seed(0)) * torch.logspace(-6, 6, 64)[:, None]
    if kind in ("int8", "float8"):
        weight[::2, 7] *= 300.0  # kept apart
    elif kind == "nf4":
        weight[::2] = torch.linspace(-1, 1, 256) * torch.logspace(-6, 6, 32)[:, None]  # of the levels that are even
    made = quantize_rows(weight, kind)
    if kind == "nf4":
        assert (made.scale[::2] < 0).all(dim=1).any() and (made.scale > 0).any()
    matrix, after = _matrix(*made, 256)
    assert matrix.dtype == torch.float16 and matrix.abs().max() <= 1
    exact = QuantizedLinear(*made, None, 256).weight()
    rounded = 2 * HALF_ERROR if kind == "nf4" else 0
    torch.testing.assert_close(matrix.float() * after[:, None], exact, rtol=rounded, atol=0)


@pytest.mark.parametrize("kind", ["int8", "float8", "nf4", "float16"])
@pytest.mark.parametrize("channels", [1, 8])
def test_outliers_cost_less_than_in_bfloat16(kind: Quantization, channels: int) -> None:
    """Channels up to a million times larger, whose weights are small, in the activations and in the gradients."""
    generator = torch.Generator().manual_seed(2)
    weight = torch.randn(96, 1024, generator=generator)
    weight[:, :channels] = 0
    weight[:channels] *= 1e-4
    made = quantize_rows(weight, kind)
    exact = QuantizedLinear(*made, None, 1024).weight()
    for size in (1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6):
        x, pull = torch.randn(64, 1024, generator=generator), torch.randn(64, 96, generator=generator)
        x[:, :channels] *= size
        pull[:, :channels] *= size
        right = x @ exact.t(), pull @ exact
        in_half, in_bfloat16 = (
            [miss(*pair) for pair in zip(_forward_and_backward(half, x, pull, made), right, strict=True)]
            for half in (True, False)
        )
        assert in_half[0] <= in_bfloat16[0] and in_half[1] <= in_bfloat16[1], (size, in_half, in_bfloat16)


def _forward_and_backward(half: bool, x: Tensor, pull: Tensor, made: Quantized) -> tuple[Tensor, Tensor]:
    linear = QuantizedLinear(*made, None, x.shape[1])
    if half:
        multiply_in_float16(linear)
    leaf = x.to(torch.float32 if half else torch.bfloat16).requires_grad_()
    output = linear(leaf)
    return output.detach().float(), torch.autograd.grad(output, leaf, pull.to(output.dtype))[0].float()


def test_what_is_no_number_stays_none() -> None:
    x = torch.tensor([[torch.nan, 1.0], [torch.inf, 1.0], [1.0, 1.0]])
    assert torch.isfinite(scaled_matmul(x, torch.eye(2).half())).all(dim=1).tolist() == [False, False, True]


@pytest.mark.parametrize("size", [1e-8, 1e8])
def test_attention(size: float) -> None:
    """Every query attends to one key: the sums over the queries are as large as they can be."""
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(2, 2, 96, 16, generator=generator) for _ in range(3))
    query, key, value = query * 3, key * 3, value * size
    key[:, :, 0] += 5 * query.mean(dim=2)
    mask = torch.arange(96)[None, None, None, :] < torch.tensor([96, 60])[:, None, None, None]
    pull = torch.randn(value.shape, generator=generator)
    found, exact = (
        _with_gradients(function, query, key, value, pull, mask)
        for function in (scaled_attention, functional.scaled_dot_product_attention)
    )
    for one, other in zip(found, exact, strict=True):
        assert miss(one, other) < 8 * HALF_ERROR


def _with_gradients(function: Any, *tensors: Tensor) -> list[Tensor]:
    query, key, value, pull, mask = tensors
    leaves = [x.clone().requires_grad_() for x in (query, key, value)]
    output = function(*leaves, attn_mask=mask)
    return [output.detach(), *torch.autograd.grad(output, leaves, pull)]
