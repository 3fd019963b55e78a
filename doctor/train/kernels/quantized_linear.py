"""A quantized Linear is frozen in eight or four bits, and a LoRA can train through it.

int8, float8 (e4m3): a weight is stored per row as `codes` and one float32 `scale`: weight = codes * scale. The scale
is rounded to a bfloat16 value, so multiplying it in bfloat16 loses nothing. Forward and backward multiply by the
codes and apply the scale to the (smaller) activations. Codes of int8 go from -128 to 127: the scale is negative where
the largest weight of a row is positive. The largest weights of each row, one of 256 but at least four, are kept
apart, so that they do not make the scale coarse for the others: `outliers` holds their columns and, in bfloat16, what
stands for them in the place of codes.

nf4: per block of 64 weights of a row one bfloat16 `scale`, near the largest of them, and per weight the index of one
of 16 levels, two to a byte (the first in the low bits); rows are padded to whole blocks. Levels: quantiles of the
normal distribution, appendix E of Dettmers et al. 2023, "QLoRA"; or as far from one another, where the scale is
negative. Each block takes what fits it best. Forward and backward build the weight anew each time.

float16: for computing in float16 (see `float16.py`); one float32 power of two a row brings its weights to at most 1.

Nothing but these is kept for backward, unless `keep_matrix` says so.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from .fused_nf4 import Dequantize, fused_on

Quantization = Literal["none", "int8", "float8", "nf4", "float16"]

# Largest code, and the storage type, of the formats with one scale a row.
FORMATS: dict[str, tuple[float, torch.dtype]] = {
    "int8": (127.0, torch.int8),
    "float8": (448.0, torch.float8_e4m3fn),
    "float16": (1.0, torch.float16),
}
# One weight in so many of a row says which of several scales of float8 fits it best, but at least so many.
SAMPLED, LEAST = 16, 128
PER_OUTLIER, LEAST_OUTLIERS = 256, 4  # weights of a row for each that is kept apart; narrow rows need more
MOST_COLUMNS = 1 << 16  # that the 16 bits of an outlier's column can tell apart
BLOCK = 64
BINS, FINE = 32, 512
LEVELS = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
EVEN_LEVELS = tuple(index / 7.5 - 1 for index in range(16))
# The scales that a block of nf4 tries, as parts of its largest weight: a little less brings the levels below nearer.
SCALES = (1.0, 0.92, -0.96)


def _multiplies_sums() -> bool:
    """Whether PyTorch has oneDNN's product in bfloat16 that also multiplies, a private function of its compiler."""
    onednn: Any = torch.ops.mkldnn
    two = torch.full((1, 1), 2.0, dtype=torch.bfloat16)
    try:
        supported = bool(onednn._is_mkldnn_bf16_supported())
        return supported and onednn._linear_pointwise.binary(two, two, two, None, "mul").item() == 8.0
    except (AttributeError, RuntimeError):
        return False


MULTIPLIES_SUMS = _multiplies_sums()


class Quantized(NamedTuple):
    """What stands for a weight (out x in), as `storage_of` tells."""

    codes: Tensor
    scale: Tensor
    outliers: Tensor | None = None


def storage_of(kind: Quantization, shape: tuple[int, int]) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    """Returns dtype and shape of what is `Quantized` of a weight (out x in), by name."""
    rows, columns = shape
    if kind == "nf4":
        blocks = -(-columns // BLOCK)
        return {"codes": (torch.uint8, (rows, blocks * BLOCK // 2)), "scale": (torch.bfloat16, (rows, blocks))}
    parts = {"codes": (FORMATS[kind][1], shape), "scale": (torch.float32, (rows,))}
    return parts if kind == "float16" else parts | {"outliers": (torch.int16, (rows, 2, _outliers(columns)))}


def _outliers(columns: int) -> int:
    return min(columns, max(LEAST_OUTLIERS, -(-columns // PER_OUTLIER)))


def quantize_rows(weight: Tensor, kind: Quantization) -> Quantized:
    """Returns what stands for a float32 weight (out x in)."""
    if kind == "nf4":
        return _quantize_blocks(weight)
    dtype = FORMATS[kind][1]
    if kind == "float16":
        scale = torch.exp2(torch.ceil(torch.log2(weight.abs().amax(dim=1).clamp_min(1e-12))))
        return Quantized((weight / scale[:, None]).to(dtype), scale)
    if weight.shape[1] > MOST_COLUMNS:
        raise ValueError(f"a Linear of {weight.shape[1]} columns has more than {MOST_COLUMNS}")
    places = weight.abs().topk(_outliers(weight.shape[1]), dim=1, sorted=False).indices
    others = weight.scatter(1, places, 0.0)
    scale = _int8_scale(others) if kind == "int8" else _float8_scale(others)
    code = _int8 if kind == "int8" else _float8
    values = (weight.gather(1, places) / scale[:, None]).to(torch.bfloat16)
    outliers = torch.stack([places.to(torch.int16), values.view(torch.int16)], dim=1)
    return Quantized(code(others.div_(scale[:, None])).to(dtype), scale, outliers)


def _int8(scaled: Tensor) -> Tensor:
    return scaled.round_().clamp_(-128.0, 127.0)


def _float8(scaled: Tensor) -> Tensor:
    return scaled.clamp_(-448.0, 448.0).to(torch.float8_e4m3fn)


def _int8_scale(weight: Tensor) -> Tensor:
    """The scale of each row by which its longer side reaches -128 and the other one 127, each by half a step more:
    what is cut off there is no more than rounding takes anywhere.
    """
    low, high = weight.aminmax(dim=1)
    longer, shorter = torch.maximum(high, -low), torch.minimum(high, -low)
    step = torch.maximum(longer / 128.5, shorter / 127.5).clamp_min(1e-12)
    return torch.where(high > -low, -step, step).to(torch.bfloat16).float()


def _float8_scale(weight: Tensor) -> Tensor:
    """Of the scales by which the largest weight of each row becomes the largest code or a smaller one that by which
    its weights are stored best: how exact they are depends on where in their powers of two they come to lie.
    """
    most = weight.abs().amax(dim=1)
    scales = (
        torch.stack([(most / code).clamp_min(1e-12) for code in (448.0, 320.0, 256.0)]).to(torch.bfloat16).float()
    )
    some = weight[:, :: max(1, min(SAMPLED, weight.shape[1] // LEAST))].contiguous() / scales[..., None]
    miss = torch.linalg.vector_norm(_float8(some.clone()).float().sub_(some), dim=2).mul_(scales)
    return scales.gather(0, miss.argmin(dim=0, keepdim=True))[0]


def _quantize_blocks(weight: Tensor) -> Quantized:
    rows, columns = weight.shape
    padded = nn.functional.pad(weight, (0, -columns % BLOCK)) if columns % BLOCK else weight  # else a copy
    blocks = padded.view(rows, -1, BLOCK)
    scale = _block_scale(blocks)
    # The index of the nearest level is the number of midpoints below: those below the bin, and the one in it. Six
    # times as fast as torch.bucketize. What is no number becomes an integer first, then one of the bins.
    below, midpoint, _ = _bins(weight.device)
    scaled = blocks / scale.float()[..., None]
    bins = (scaled + 1).mul_(BINS / 2).int().clamp_(0, BINS - 1).add_((scale < 0)[..., None], alpha=BINS).view(-1)
    index = below.index_select(0, bins) + (scaled.view(-1) > midpoint.index_select(0, bins))
    pairs = index.view(rows, -1, 2)
    return Quantized(pairs[..., 0] | pairs[..., 1] << 4, scale)


def _block_scale(blocks: Tensor) -> Tensor:
    """The scale of each block, of those that it tries, by which its weights are stored best."""
    largest = blocks.abs().amax(dim=2).clamp_min(1e-12)
    near = _bins(blocks.device)[2]
    scales = torch.stack([largest * part for part in SCALES]).to(torch.bfloat16)
    tried = zip(SCALES, scales.float(), strict=True)
    misses = torch.stack([_miss(blocks, scale, near[int(part < 0)]) for part, scale in tried])
    return scales.gather(0, misses.argmin(dim=0, keepdim=True))[0]


def _miss(blocks: Tensor, scale: Tensor, near: Tensor) -> Tensor:
    """How far the levels that are about nearest lie from the weights of each block, as the root of all squares."""
    scaled = blocks / scale[..., None]
    bins = (scaled + 1).mul_(FINE / 2).int().clamp_(0, FINE - 1)
    stored = near.index_select(0, bins.view(-1)).view(blocks.shape)
    miss: Tensor = torch.linalg.vector_norm(stored.sub_(scaled), dim=2)
    return miss.mul_(scale.abs())


@cache
def _bins(device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Per bin of -1 to 1 how many midpoints between levels lie below it, and the next one; no bin holds two. Per fine
    bin the level that is nearest to its middle. Of the quantiles, then of the even levels.
    """
    levels = torch.tensor([LEVELS, EVEN_LEVELS])
    midpoints = (levels[:, 1:] + levels[:, :-1]) / 2
    starts = torch.arange(BINS) * (2 / BINS) - 1
    below = (midpoints[:, None] < starts[:, None]).sum(dim=2)
    following = nn.functional.pad(midpoints, (0, 1), value=torch.inf).gather(1, below)
    middles = (torch.arange(FINE) + 0.5) * (2 / FINE) - 1
    near = levels.gather(1, (midpoints[:, None] < middles[:, None]).sum(dim=2))
    return below.view(-1).to(device, torch.uint8), following.view(-1).to(device), near.to(device)


def dequantize_nf4(codes: Tensor, scale: Tensor, columns: int, dtype: torch.dtype) -> Tensor:
    """Returns the weight (out x `columns`) that nf4's codes and scales stand for."""
    make: Dequantize = _from_codes
    if codes.device.type == "cuda" and not torch.compiler.is_compiling():  # which makes one kernel of it by itself
        make = fused_on(codes.device, _from_codes)[0] or _from_codes
    return make(codes, scale, _pairs(dtype, codes.device))[:, :columns]


def why_not_fused(device: torch.device) -> str:
    """Returns why nf4's weights are made by several kernels on a card; "" where by one."""
    return fused_on(device, _from_codes)[1]


def _from_codes(codes: Tensor, scale: Tensor, pairs: Tensor) -> Tensor:
    is_even = (scale < 0).int()[..., None]
    bytes_of = codes.view(*scale.shape, BLOCK // 2).int().add_(is_even, alpha=256)
    levels = nn.functional.embedding(bytes_of, pairs).view(*scale.shape, BLOCK)
    return levels.mul_(scale.to(pairs.dtype)[..., None]).view(codes.shape[0], -1)


@cache
def _pairs(dtype: torch.dtype, device: torch.device) -> Tensor:
    """The two levels that each byte stands for, 256 x 2, and those where the scale is negative, as many."""
    both = torch.tensor([LEVELS, EVEN_LEVELS], dtype=dtype, device=device)
    return torch.stack([both.repeat(1, 16), both.repeat_interleave(16, dim=1)], dim=2).view(512, 2)


def put_outliers(matrix: Tensor, outliers: Tensor, values: Tensor) -> Tensor:
    """Puts numbers (out x so many) where the outliers of a matrix are."""
    columns, values = outliers[:, 0].long(), values.to(matrix.dtype)
    if matrix.shape[1] > 1 << 15:
        columns = columns & (MOST_COLUMNS - 1)  # 16 bits have a sign
    if matrix.device.type != "cpu":
        return matrix.scatter_(1, columns, values)
    starts = torch.arange(0, matrix.numel(), matrix.shape[1])[:, None]
    return matrix.put_(columns + starts, values)  # a scatter takes 16 times as long there


def outlier_values(outliers: Tensor) -> Tensor:
    """Returns what stands for the outliers in the place of codes."""
    return outliers[:, 1].view(torch.bfloat16)


def _matrix(codes: Tensor, scale: Tensor, outliers: Tensor | None, columns: int, dtype: torch.dtype) -> Tensor:
    """Returns the weight (out x `columns`), still to be multiplied by the scales of its rows if it has such."""
    if scale.dim() == 2:
        return dequantize_nf4(codes, scale, columns, dtype)
    matrix = codes.to(dtype)
    return matrix if outliers is None else put_outliers(matrix, outliers, outlier_values(outliers))


def _times_rows(x: Tensor, matrix: Tensor, scale: Tensor) -> Tensor:
    """Returns x times the rows of a matrix, each times its scale: on a CPU before it is rounded and written down."""
    by = scale.to(x.dtype)
    if x.dim() == 2 and x.dtype == torch.bfloat16 and x.device.type == "cpu" and MULTIPLIES_SUMS:
        y: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, by[None], matrix, None, "mul")
        return y
    return nn.functional.linear(x, matrix).mul_(by)


class _Multiply(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, codes: Tensor, scale: Tensor, outliers: Tensor | None, keeps_matrix: bool
    ) -> Tensor:
        ctx.columns, ctx.is_coded = x.shape[-1], not keeps_matrix
        matrix = _matrix(codes, scale, outliers, ctx.columns, x.dtype)
        ctx.save_for_backward(*((matrix, scale, None) if keeps_matrix else (codes, scale, outliers)))
        return _times_rows(x, matrix, scale) if scale.dim() == 1 else nn.functional.linear(x, matrix)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, None, None, None, None]:
        grad: Tensor = grads[0]
        matrix, scale, outliers = ctx.saved_tensors  # read once: a checkpoint unpacks each saved tensor only once
        if ctx.is_coded:
            matrix = _matrix(matrix, scale, outliers, ctx.columns, grad.dtype)
        if scale.dim() == 1:
            grad = grad * scale.to(grad.dtype)
        return grad @ matrix.to(grad.dtype), None, None, None, None


def _multiply(x: Tensor, codes: Tensor, scale: Tensor, outliers: Tensor | None, keeps_matrix: bool = False) -> Tensor:
    apply: Any = _Multiply.apply
    return apply(x, codes, scale, outliers, keeps_matrix)  # type: ignore[no-any-return]


class QuantizedLinear(nn.Module):
    """A frozen Linear whose weight is `Quantized`, bias (out,) or None.

    What it is made of are parameters without gradient, not buffers, because FSDP2 shares out parameters only.
    """

    codes: Tensor
    scale: Tensor
    outliers: Tensor | None
    bias: Tensor | None

    def __init__(
        self, codes: Tensor, scale: Tensor, outliers: Tensor | None, bias: Tensor | None, in_features: int
    ) -> None:
        super().__init__()
        self.out_features, self.in_features = codes.shape[0], in_features
        self.codes = nn.Parameter(codes, requires_grad=False)
        self.scale = nn.Parameter(scale, requires_grad=False)
        self.outliers = None if outliers is None else nn.Parameter(outliers, requires_grad=False)
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)
        self.multiply: Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor] = _multiply

    def forward(self, x: Tensor) -> Tensor:
        y = self.multiply(x, self.codes, self.scale, self.outliers)
        return y if self.bias is None else y + self.bias

    def keep_matrix(self) -> None:
        """Keeps the dequantized matrix for backward: more memory, less work."""
        self.multiply = partial(_multiply, keeps_matrix=True)

    def weight(self) -> Tensor:
        outliers = None if self.outliers is None else put_together(self.outliers)
        scale = put_together(self.scale)
        matrix = _matrix(put_together(self.codes), scale, outliers, self.in_features, torch.float32)
        return matrix if scale.dim() == 2 else matrix * scale[:, None]


def put_together(value: Tensor) -> Tensor:
    """Returns a parameter as a whole, of which FSDP2 may keep only some rows here."""
    gather: Callable[[], Tensor] | None = getattr(value, "full_tensor", None)
    return value if gather is None else gather()
