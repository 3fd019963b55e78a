"""The VAE takes large images in less memory: its wide layers go through them in strips of rows.

Tiles, as diffusers has them, normalize each tile by itself and give other latents (with random weights by a quarter
and more). Here the norms are those of the whole picture and each strip sees its neighbours' rows, so that only
rounding differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

# Pictures of more pixels than the buckets of 1024 x 1024 have.
LARGE = 1_100_000
STRIP = 1 << 16

Step = Callable[[Tensor], Tensor]


@contextmanager
def in_strips(network: nn.Module, wanted: bool = True) -> Iterator[None]:
    """Lets an AutoencoderKL's encoder or decoder work in strips; without gradients, its input may be overwritten."""
    changed: dict[Any, Callable[..., Tensor]] = dict(_changes(network)) if wanted else {}
    for module, forward in changed.items():
        module.forward = forward
    try:
        yield
    finally:
        for module in changed:
            del module.forward


def _changes(network: Any) -> Iterator[tuple[Any, Callable[..., Tensor]]]:
    from diffusers.models.downsampling import Downsample2D
    from diffusers.models.resnet import ResnetBlock2D
    from diffusers.models.upsampling import Upsample2D

    for module in network.modules():
        if isinstance(module, ResnetBlock2D):
            yield module, lambda x, *_args, block=module, **_options: _residual(block, x)
        elif isinstance(module, Upsample2D):
            yield module, lambda x, *_args, conv=module.conv, **_options: _enlarged(conv, x)
        elif isinstance(module, Downsample2D):
            yield module, lambda x, *_args, conv=module.conv, **_options: _shrunk(conv, x)
    first, head, norm, act = network.conv_in, network.conv_out, network.conv_norm_out, network.conv_act
    yield first, lambda x: _convolved(first, x, lambda part: part)
    yield norm, lambda x: x
    yield act, lambda x: x
    plain = type(act)()
    yield head, lambda x: _convolved(head, x, _normed(norm, x, plain))


def _residual(block: Any, x: Tensor) -> Tensor:
    inner = _convolved(block.conv1, x, _normed(block.norm1, x, block.nonlinearity))
    before = _normed(block.norm2, inner, block.nonlinearity)
    shortcut = block.conv_shortcut
    output = x if shortcut is None else x.new_empty((x.shape[0], inner.shape[1], *x.shape[2:]))
    for top, bottom in _rows(x):
        change = _strip(block.conv2, inner, before, top, bottom)
        rows = x[:, :, top:bottom]
        output[:, :, top:bottom] = (rows if shortcut is None else shortcut(rows)).add(
            change
        ) / block.output_scale_factor
    return output


def _shrunk(conv: Any, x: Tensor) -> Tensor:
    """The convolution in steps of two of a picture with a row and a column of zeros below and to the right."""
    output = x.new_empty((x.shape[0], conv.out_channels, x.shape[2] // 2, x.shape[3] // 2))
    for top, bottom in _rows(output):
        rows = x[:, :, 2 * top : 2 * bottom + 1]
        rows = functional.pad(rows, (0, 1, 0, 2 * (bottom - top) + 1 - rows.shape[2]))
        output[:, :, top:bottom] = functional.conv2d(rows, conv.weight, conv.bias, stride=2)
    return output


def _enlarged(conv: Any, x: Tensor) -> Tensor:
    """The convolution of a picture of twice the size."""
    output = x.new_empty((x.shape[0], conv.out_channels, 2 * x.shape[2], 2 * x.shape[3]))
    for top, bottom in _rows(output):
        low, high = max(0, top // 2 - 1), min(x.shape[2], -(-bottom // 2) + 1)
        rows = functional.interpolate(x[:, :, low:high], scale_factor=2.0, mode="nearest")
        inside = _strip(conv, rows, lambda part: part, top - 2 * low, bottom - 2 * low)
        output[:, :, top:bottom] = inside
    return output


def _convolved(conv: nn.Conv2d, x: Tensor, before: Step) -> Tensor:
    output = x.new_empty((x.shape[0], conv.out_channels, *x.shape[2:]))
    for top, bottom in _rows(x):
        output[:, :, top:bottom] = _strip(conv, x, before, top, bottom)
    return output


def _strip(conv: nn.Conv2d, x: Tensor, before: Step, top: int, bottom: int) -> Tensor:
    """The rows from `top` to `bottom` of a 3 x 3 convolution of `before` of x, whose edges are padded with zeros."""
    low, high = max(0, top - 1), min(x.shape[2], bottom + 1)
    rows = functional.pad(before(x[:, :, low:high]), (1, 1, low - top + 1, bottom + 1 - high))
    return functional.conv2d(rows, conv.weight, conv.bias)


def _normed(norm: nn.GroupNorm, x: Tensor, act: Step) -> Step:
    """The norm of all of x and then the activation, of a part of its rows."""
    grouped = x.reshape(x.shape[0], norm.num_groups, -1)
    variance, mean = torch.var_mean(grouped, dim=-1, correction=0)
    each = x.shape[1] // norm.num_groups
    factor = (variance + norm.eps).rsqrt().repeat_interleave(each, dim=1) * norm.weight
    shift = norm.bias - mean.repeat_interleave(each, dim=1) * factor
    return lambda part: act(part * factor[:, :, None, None] + shift[:, :, None, None])


def _rows(x: Tensor) -> list[tuple[int, int]]:
    height, width = x.shape[-2:]
    step = max(2, STRIP // width // 2 * 2)
    return [(top, min(height, top + step)) for top in range(0, height, step)]
