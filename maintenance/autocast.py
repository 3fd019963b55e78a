"""torch.autocast in bfloat16 on a card, for tensors without data, whose device has none.

Of what a function is given, numbers in 32 or 8 bits become 16 bits, or those in 16 bits 32, by PyTorch's lists for
CUDA (aten/src/ATen/autocast_mode.h).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from zdoctor.doctor.configs.words import words

_HALF = words("linear conv1d conv2d conv3d matmul __matmul__ mm bmm addmm baddbmm einsum prelu")
# in the widest type that they are given
_WIDEST = words("addcmul addcdiv")
_WHOLE = words(
    """
    layer_norm group_norm rms_norm exp log pow __pow__ rsqrt reciprocal softmax log_softmax sum prod norm cumsum
    mse_loss softplus
    """
)


class Autocast(TorchFunctionMode):
    """What autocast does, but where a class turns it off, or to another type.

    While it is not `is_on`, all is computed as it is given. With `caches` what was made of weights that learn stays
    until the outermost autocast ends, as PyTorch has it. Without, what a block keeps can be told from what autocast
    does. Without `norms` it leaves rms_norm as it is, as before PyTorch 2.12.
    """

    def __init__(self) -> None:
        super().__init__()
        self.enabled, self.dtype = True, torch.bfloat16
        self.is_on, self.caches, self.depth = True, False, 0
        self.made: dict[int, Tensor] = {}
        self.norms = True

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        kwargs = kwargs or {}
        if self.enabled and name in _HALF:
            args, kwargs = tree_map(self._half, (args, kwargs))
        elif self.enabled and not self.norms and name == "rms_norm":
            pass
        elif self.enabled and (name in _WHOLE or (name in _WIDEST and _is_mixed(args))):
            args, kwargs = tree_map(_whole, (args, kwargs))
        elif name == "tensor" and kwargs.get("dtype") == torch.long:  # sizes, which a class reads back
            kwargs = {"device": "cpu", **kwargs}
        return func(*args, **kwargs)

    def computes(self, run: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """What `run` gives, computed with autocast."""
        if not self.is_on:
            return run(*given, **named)
        with self.turned(), self:
            return run(*given, **named)

    def attends(self, kernel: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """Attention in 16 bits, too."""
        return lambda *given, **named: kernel(*tree_map(self._half, given), **tree_map(self._half, named))

    @contextmanager
    def turned(
        self, *how: Any, enabled: bool = True, dtype: torch.dtype = torch.bfloat16, **named: Any
    ) -> Iterator[None]:
        """In place of torch.autocast where a class says it."""
        before = self.enabled, self.dtype
        self.enabled, self.dtype = enabled, dtype
        self.depth += 1
        try:
            yield
        finally:
            self.enabled, self.dtype = before
            self.depth -= 1
            if not self.depth:
                self.made.clear()

    def _half(self, value: Any) -> Any:
        is_other = isinstance(value, Tensor) and value.is_floating_point() and value.dtype != self.dtype
        if not (self.is_on and self.enabled and is_other):
            return value
        if not (
            self.caches and self.depth and value.is_leaf and value.requires_grad and value.dtype == torch.float32
        ):
            return value.to(self.dtype)
        if id(value) not in self.made:
            self.made[id(value)] = value.to(self.dtype)
        return self.made[id(value)]


def _whole(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) and value.dtype == torch.bfloat16 else value


def _is_mixed(args: Any) -> bool:
    return len({value.dtype for value in args if isinstance(value, Tensor)}) > 1
