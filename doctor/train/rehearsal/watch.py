"""What is alive after each block of a transformer, and the highest while the gradient goes back through it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .alive import Alive

GRADIENTS = "gradients"


@dataclass
class Held:
    """Bytes: of what is there before the step (`static`), at the `peak`, and by what it is there (`at_peak`).

    `reserved` is the most that CUDA's allocator would have taken from the driver for it, and `allocated` the most
    that it would count as given out: a block that was not split counts as a whole.

    `before` has all that was alive until the first block ran, `after` for each list of blocks what was alive after
    each block in forward; `forward` and `backward` all that was alive while the last block of a list ran and while
    the gradient went back through it, `gradients` what was held for gradients when that began. `drawing` is all that
    was alive in a forward without gradients, `whole` in the step of a model without lists of blocks.
    """

    static: int = 0
    peak: int = 0
    reserved: int = 0
    allocated: int = 0
    at_peak: dict[str, int] = field(default_factory=dict)
    drawing: list[int] = field(default_factory=list)
    whole: list[int] = field(default_factory=list)
    before: list[int] = field(default_factory=list)
    after: dict[str, list[int]] = field(default_factory=dict)
    forward: dict[str, list[int]] = field(default_factory=dict)
    backward: dict[str, list[int]] = field(default_factory=dict)
    gradients: dict[str, int] = field(default_factory=dict)


class Watch:
    """Hooks on the blocks of a transformer, which write into a `Held` and name what becomes alive."""

    def __init__(self, model: Any, lists: Sequence[str], alive: Alive, held: Held) -> None:
        self.alive, self.held, self.is_back = alive, held, False
        for name in lists:
            blocks = list(model.get_submodule(name))
            for block in blocks:
                is_last = block is blocks[-1]
                block.register_forward_pre_hook(partial(self._enters, name, is_last))
                block.register_forward_hook(partial(self._ran, name, is_last))
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(lambda p: alive.belongs(p.grad, GRADIENTS))

    def begin(self) -> None:
        self.is_back = False
        self.held.after.clear()
        self.alive.label = "around the blocks"

    def _enters(self, name: str, is_last: bool, block: Any, args: Any) -> None:
        self.alive.label = f"{name}, computed again" if self.is_back else name
        if torch.is_grad_enabled() and not self.is_back:
            self.held.before = self.held.before or self.alive.trail
            self.alive.trail = [self.alive.now]
            if is_last:
                self.held.forward[name] = self.alive.trail

    def _ran(self, name: str, is_last: bool, block: Any, args: Any, out: Any) -> None:
        if self.is_back or not torch.is_grad_enabled():
            return
        self.alive.label = "around the blocks"
        self.held.after.setdefault(name, []).append(self.alive.now)
        begun: list[str] = []
        for one in out if isinstance(out, tuple) else (out,):
            if isinstance(one, Tensor) and one.requires_grad:
                hook = partial(self._back, name, is_last, begun)
                one.register_hook(hook)  # type: ignore[no-untyped-call]

    def _back(self, name: str, is_last: bool, begun: list[str], gradient: Tensor) -> None:
        if begun:  # by another of the block's outputs
            return
        begun.append(name)
        self.is_back = True
        self.alive.trail = [self.alive.now]
        if is_last:
            self.held.backward[name] = self.alive.trail
            self.held.gradients[name] = self.alive.held[GRADIENTS]
