"""Optimizers as packages bring them, for what a config may name as module.Class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class Free(torch.optim.Optimizer):
    """Schedule-free gradient descent: trained are points between z and their mean x, which is what is used."""

    def __init__(self, params: Any, lr: float, *, beta: float = 0.9) -> None:
        super().__init__(params, {"lr": lr, "beta": beta, "k": 0, "train_mode": False})

    def _move(self, training: bool) -> None:
        for group in self.param_groups:
            if group["train_mode"] != training:
                weight = 1 - group["beta"] if training else 1 - 1 / group["beta"]
                for p in group["params"]:
                    if self.state[p]:
                        p.data.lerp_(self.state[p]["z"], weight)
                group["train_mode"] = training

    def train(self) -> None:
        self._move(True)

    def eval(self) -> None:
        self._move(False)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            assert group["train_mode"], "step() before train()"
            group["k"] += 1
            for p in group["params"]:
                z = self.state[p].setdefault("z", p.clone())
                p.lerp_(z, 1 / group["k"]).add_(
                    p.grad, alpha=group["lr"] * (group["beta"] * (1 - 1 / group["k"]) - 1)
                )
                z.sub_(p.grad, alpha=group["lr"])


class Needy(Free):
    """One that cannot be made without another argument."""

    def __init__(self, params: Any, lr: float, *, momentum: float) -> None:
        super().__init__(params, lr, beta=momentum)


class Closed(torch.optim.LBFGS):
    """One whose step wants to compute the loss again."""


class Odd(Free):
    """One whose state is no tensor and no number."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            group["how"] = lambda: None
