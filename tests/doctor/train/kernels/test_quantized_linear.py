"""Eight- and four-bit storage keeps the weight within its format's error, and gradients through it are exact."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from zdoctor.doctor.train.kernels import quantized_linear
from zdoctor.doctor.train.kernels.quantized_linear import (
    BLOCK,
    EVEN_LEVELS,
    LEAST_OUTLIERS,
    LEVELS,
    SCALES,
    Quantization,
    Quantized,
    QuantizedLinear,
    quantize_rows,
    storage_of,
)

# Largest error of a weight: relative to the largest weight of its row (int8), to itself (float8: 3 mantissa bits).
INT8_STEP = 1 / 127
FLOAT8_STEP = 2**-3
KINDS: tuple[Quantization, ...] = ("int8", "float8", "nf4")


def dequantize(made: Quantized, columns: int) -> Tensor:
    return QuantizedLinear(*made, None, columns).weight()


def weight(rows: int = 48, columns: int = 64) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    value = torch.randn(rows, columns, generator=generator)
    value[3] *= 1000.0  # an outlier row must not spoil the others
    value[5] = 0.0
    return value


def test_int8_is_within_one_half_step_of_what_is_left_of_each_row() -> None:
    value = weight()
    made = quantize_rows(value, "int8")
    assert made.codes.dtype == torch.int8
    error, size = (dequantize(made, 64) - value).abs(), value.abs()
    most = size.topk(LEAST_OUTLIERS + 1, dim=1).values
    least_apart, largest = most[:, -2, None], most[:, -1, None]
    # but for what lies at the ends, beside a scale that bfloat16 has rounded down by up to 1 in 256
    step = largest * INT8_STEP * torch.where(size < 0.98 * largest, 0.51, 1.01)
    assert (error <= torch.where(size >= least_apart, size * 2**-8, step)).all()
    assert made.codes.min() == -128 and made.codes.max() == 127


@pytest.mark.parametrize("kind", ["int8", "float8"])
@pytest.mark.parametrize(("columns", "kept"), [(1, 1), (5, 4), (1024, 4), (1025, 5), (2200, 9), (40000, 157)])
def test_the_largest_weights_of_a_row_are_kept_in_sixteen_bits(kind: Quantization, columns: int, kept: int) -> None:
    """And change nothing of the others: one that is 1000 times larger makes no coarser step."""
    value = torch.randn(4, columns, generator=torch.Generator().manual_seed(3))
    far = value.clone()
    apart = columns // kept
    far[:, columns - 1 - apart * (kept - 1) :: apart] = torch.tensor([[1000.0], [-1000.0]]).repeat(2, kept)
    made = dequantize(quantize_rows(far, kind), columns)
    is_far = far.abs() == 1000.0
    assert is_far.sum() == 4 * kept and ((made - far).abs()[is_far] <= 1000 * 2**-8).all()
    if columns > kept:
        assert (made - far)[~is_far].norm() < 0.04 * far[~is_far].norm()


def theirs(value: Tensor, kind: Quantization) -> Iterator[Tensor]:
    """What torchao (int8, float8), bitsandbytes (nf4) and SDNQ (in groups of a row) make of weights, with scales in
    float32.
    """
    if kind == "nf4":
        blocks = value.view(len(value), -1, BLOCK)
        scale = blocks.abs().amax(dim=2, keepdim=True)
        levels = torch.tensor(LEVELS)
        yield (levels[torch.bucketize(blocks / scale, (levels[1:] + levels[:-1]) / 2)] * scale).view(value.shape)
        groups = value.view(-1, BLOCK)
        low, high = (end[:, None] for end in groups.aminmax(dim=1))
        scale = (high - low) / 15
        yield (((groups - low) / scale).round() * scale + low).view(value.shape)
        return
    for columns in (value.shape[1], 1024):
        groups = value.view(-1, columns)
        scale = groups.abs().amax(dim=1, keepdim=True) / {"int8": 127.5, "float8": 448.0}[kind]
        scaled = groups / scale
        codes = scaled.round().clamp(-128, 127) if kind == "int8" else scaled.to(torch.float8_e4m3fn).float()
        yield (codes * scale).view(value.shape)
        if kind == "int8":  # unsigned
            low, high = (end[:, None] for end in groups.aminmax(dim=1))
            scale = (high - low) / 255
            yield (((groups - low) / scale).round() * scale + low).view(value.shape)


@pytest.mark.parametrize("kind", ["int8", "float8", "nf4"])
@pytest.mark.parametrize("name", ["uniform", "normal", "laplace", "t", "cauchy", "one channel"])
def test_no_format_is_worse_than_that_of_others(name: str, kind: Quantization) -> None:
    torch.manual_seed(0)
    normal = torch.randn(128, 2048)
    value = {
        "uniform": torch.rand(128, 2048) * 2 - 1,
        "normal": normal,
        "laplace": normal.sign() * torch.empty(128, 2048).exponential_(),
        "t": normal / (torch.randn(3, 128, 2048).square().sum(0) / 3).sqrt(),
        "cauchy": torch.empty(128, 2048).cauchy_().clamp(-200, 200),
        "one channel": torch.where(torch.arange(2048) == 5, 30 * normal, normal),
    }[name]
    made = dequantize(quantize_rows(value, kind), 2048)
    assert (made - value).norm() < min((other - value).norm() for other in theirs(value, kind))


def test_float8_keeps_three_bits_of_every_weight() -> None:
    value = weight()
    made = quantize_rows(value, "float8")
    assert made.codes.dtype == torch.float8_e4m3fn
    error = (dequantize(made, 64) - value).abs()
    smallest = made.scale[:, None] * 2**-9  # below that lie the denormals of the format
    assert (error <= torch.maximum(value.abs() * FLOAT8_STEP / 2 * 1.01, smallest)).all()


@pytest.mark.parametrize("rounded", [1, 2])
def test_what_is_summed_and_scaled_is_rounded_once_where_this_torch_can(
    rounded: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """bfloat16 has 8 bits: rounding once is wrong by about 0.0017, twice by 0.0024, measured over a whole matrix."""
    if rounded == 1 and not quantized_linear.MULTIPLIES_SUMS:
        pytest.skip("this PyTorch has no such product")
    monkeypatch.setattr(quantized_linear, "MULTIPLIES_SUMS", rounded == 1)
    x = torch.randn(50, 512, generator=torch.Generator().manual_seed(1)).bfloat16()
    value = torch.randn(96, 512, generator=torch.Generator().manual_seed(0))
    linear = QuantizedLinear(*quantize_rows(value, "int8"), None, 512)
    exact = x.double() @ linear.weight().double().t()
    apart = (linear(x).double() - exact).norm() / exact.norm()
    assert {1: 0.0012, 2: 0.0019}[rounded] < apart < {1: 0.0019, 2: 0.0030}[rounded]


@pytest.mark.parametrize("columns", [64, 128, 70, 1, 63])
def test_nf4_takes_the_nearest_level_of_each_block(columns: int) -> None:
    value = weight(9, columns)
    made = quantize_rows(value, "nf4")
    scale = made.scale
    padded = nn.functional.pad(value, (0, -columns % BLOCK)).view(9, -1, BLOCK)
    largest = padded.abs().amax(dim=2)
    parts = scale.float()[..., None] / largest.clamp_min(1e-12)[..., None]
    assert (((parts - torch.tensor(SCALES)).abs() <= 2**-8).sum(dim=2) == 1).all()
    levels = torch.where(scale[..., None] < 0, torch.tensor(EVEN_LEVELS), torch.tensor(LEVELS))
    levels = (levels * scale.float()[..., None])[:, :, None]
    index = (padded[..., None] - levels).abs().argmin(dim=3, keepdim=True)
    nearest = torch.take_along_dim(levels, index, dim=3)
    expected = nearest.view(9, -1)[:, :columns]
    miss, least = ((found - value).abs() for found in (dequantize(made, columns), expected))
    assert (miss <= least + 1e-6 * value.abs()).all()


@pytest.mark.parametrize("kind", ["int8", "float8"])
def test_the_places_of_the_largest_weights_are_told_in_sixteen_bits(kind: Quantization) -> None:
    widest = torch.zeros(1, quantized_linear.MOST_COLUMNS)
    widest[0, -1] = 3.0
    assert torch.allclose(dequantize(quantize_rows(widest, kind), widest.shape[1]), widest, rtol=2**-8)
    with pytest.raises(ValueError, match="65537 columns"):
        quantize_rows(torch.zeros(1, quantized_linear.MOST_COLUMNS + 1), kind)


def test_a_weight_that_is_no_number_stays_none() -> None:
    value = weight()
    value[0, 3], value[1, 5] = torch.nan, torch.inf
    made = dequantize(quantize_rows(value, "nf4"), 64)
    assert not made[:2].isfinite().any() and made[2:].isfinite().all()


def test_the_errors_on_normal_weights_are_those_of_the_formats() -> None:
    value = torch.randn(64, 1024, generator=torch.Generator().manual_seed(0))
    bars: dict[Quantization, float] = {"int8": 0.009, "float8": 0.027, "nf4": 0.094}
    for kind, bar in bars.items():
        miss = dequantize(quantize_rows(value, kind), 1024) - value
        assert 0.5 * bar < miss.pow(2).mean().sqrt() < bar, kind


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(48, 64), (3, 70)])
def test_codes_and_scales_are_stored_as_announced(kind: Quantization, shape: tuple[int, int]) -> None:
    made = quantize_rows(weight(48, shape[1])[: shape[0]], kind)._asdict()
    stored = {name: (value.dtype, tuple(value.shape)) for name, value in made.items() if value is not None}
    assert stored == storage_of(kind, shape)


def test_scales_are_exact_in_bfloat16() -> None:
    scale = quantize_rows(weight(), "int8").scale
    assert torch.equal(scale, scale.bfloat16().float())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias", [True, False])
def test_output_and_gradient_are_those_of_the_dequantized_linear(kind: Quantization, bias: bool) -> None:
    torch.manual_seed(1)
    extra = torch.randn(48) if bias else None
    ours = QuantizedLinear(*quantize_rows(weight(), kind), extra, 64)
    x = torch.randn(2, 7, 64, requires_grad=True)
    y = x.detach().clone().requires_grad_(True)
    push = torch.randn(2, 7, 48)
    out = ours(x)
    reference = nn.functional.linear(y, ours.weight(), extra)
    torch.testing.assert_close(out, reference, rtol=1e-5, atol=1e-3)
    out.backward(push)
    reference.backward(push)  # type: ignore[no-untyped-call]
    torch.testing.assert_close(x.grad, y.grad, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("kind", ["int8", "nf4"])
def test_gradcheck_in_double_precision(kind: Quantization) -> None:
    ours = QuantizedLinear(*quantize_rows(weight(6, 5), kind), None, 5)
    x = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(ours, (x,))


@pytest.mark.parametrize("kind", KINDS)
def test_a_matrix_that_is_kept_changes_no_bit(kind: Quantization) -> None:
    ours, kept = (QuantizedLinear(*quantize_rows(weight(), kind), None, 64) for _ in range(2))
    kept.keep_matrix()
    made: dict[str, list[Tensor]] = {"plain": [], "kept": []}
    sizes = {"plain": 0, "kept": 0}
    for name, module in (("plain", ours), ("kept", kept)):
        x = torch.randn(3, 64, generator=torch.Generator().manual_seed(0)).bfloat16().requires_grad_()

        def pack(saved: Tensor, name: str = name) -> Tensor:
            sizes[name] += saved.nbytes
            return saved

        with saved_tensors_hooks(pack, lambda saved: saved):
            out = module(x)
        out.sum().backward()
        assert x.grad is not None
        made[name] = [out, x.grad]
    assert all(torch.equal(one, other) for one, other in zip(made["plain"], made["kept"], strict=True))
    assert sizes["plain"] < 48 * 64 * 2 <= sizes["kept"]


@pytest.mark.parametrize("kind", KINDS)
def test_checkpointing_changes_no_gradient(kind: Quantization) -> None:
    ours = QuantizedLinear(*quantize_rows(weight(64, 64), kind), None, 64)
    x = torch.randn(3, 64, requires_grad=True)
    y = x.detach().clone().requires_grad_(True)
    ours(ours(x)).sum().backward()
    again = checkpoint(lambda v: ours(ours(v)), y, use_reentrant=False)
    assert isinstance(again, Tensor)
    again.sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None and y.grad is not None
    assert torch.equal(x.grad, y.grad)


def test_weights_are_frozen_and_of_the_size_of_the_format() -> None:
    sizes: dict[Quantization, int] = {"int8": 48 * 64 + 48 * 20, "float8": 48 * 64 + 48 * 20, "nf4": 48 * 32 + 48 * 2}
    for kind, size in sizes.items():
        ours = QuantizedLinear(*quantize_rows(weight(), kind), None, 64)
        assert not any(parameter.requires_grad for parameter in ours.parameters())
        assert sum(parameter.nbytes for parameter in ours.parameters()) == size
