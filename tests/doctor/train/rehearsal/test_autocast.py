"""maintenance/autocast.py beside torch.autocast: how often a weight that learns is made 16 bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from zdoctor.maintenance.autocast import Autocast


class Casts(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what becomes bfloat16 of the shape of a weight."""

    def __init__(self, shape: torch.Size) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.shape, self.count = shape, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        is_cast = func is torch.ops.aten._to_copy.default and found.dtype == torch.bfloat16
        self.count += is_cast and found.shape == self.shape
        return found


def twice(linear: nn.Linear, x: Tensor) -> Tensor:
    return nn.functional.linear(nn.functional.linear(x, linear.weight), linear.weight)


def casts(run: Callable[..., Tensor], *, learns: bool) -> int:
    linear = nn.Linear(4, 4).requires_grad_(learns)
    x = torch.ones(3, 4, requires_grad=True)
    with Casts(linear.weight.shape) as counted:
        torch.autograd.backward(run(linear, x).sum())
    return int(counted.count)


def of_torch(linear: nn.Linear, x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return twice(linear, x)


def again_of_torch(linear: nn.Linear, x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found: Tensor = checkpoint(twice, linear, x, use_reentrant=False)
        return found


@pytest.mark.parametrize("learns", [True, False])
@pytest.mark.parametrize("again", [True, False])
def test_what_is_made_16_bits_is_kept_as_by_torch(learns: bool, again: bool) -> None:
    autocast = Autocast()
    autocast.caches = True

    def ours(linear: nn.Linear, x: Tensor) -> Tensor:
        if not again:
            return autocast.computes(twice, linear, x)  # type: ignore[no-any-return]
        return autocast.computes(checkpoint, autocast.computes, twice, linear, x, use_reentrant=False)  # type: ignore[no-any-return]

    assert casts(ours, learns=learns) == casts(again_of_torch if again else of_torch, learns=learns)
    assert not autocast.made  # which ends with the outermost


def test_without_it_each_product_makes_its_own() -> None:
    assert casts(lambda linear, x: Autocast().computes(twice, linear, x), learns=True) == 2
