"""ai-toolkit's Prodigy keeps its state in eight bits (27a03a91, for trained weights in float32)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from .ai_toolkit_optimizers import ByTensor, Group, State, check_adam, coded, decoded


class Prodigy8bit(ByTensor):
    """Adam whose step grows with how far the weights have come along their gradients."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1.0,
        betas: tuple[float, float] = (0.9, 0.999),
        beta3: float | None = None,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decouple: bool = True,
        use_bias_correction: bool = False,
        safeguard_warmup: bool = False,
        d0: float = 1e-6,
        d_coef: float = 1.0,
        growth_rate: float = math.inf,
    ) -> None:
        check_adam(betas, eps)
        if d0 <= 0.0 or lr <= 0.0:
            raise ValueError(f"d0 ({d0}) and lr ({lr}) must be above 0")
        how = {"betas": betas, "beta3": beta3, "eps": eps, "weight_decay": weight_decay, "decouple": decouple}
        how |= {"use_bias_correction": use_bias_correction, "safeguard_warmup": safeguard_warmup}
        distance = {"d": d0, "d0": d0, "d_max": d0, "d_numerator": 0.0, "d_coef": d_coef, "growth_rate": growth_rate}
        super().__init__(params, {"lr": lr, **how, **distance, "k": 0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        first, parts = self.param_groups[0], []
        (one, two), d, k = first["betas"], first["d"], first["k"]
        lr = max(group["lr"] for group in self.param_groups)
        if any(group["lr"] not in (lr, 0.0) for group in self.param_groups):
            raise RuntimeError("Prodigy has one learning rate for all that is trained")
        corrected = (1 - two ** (k + 1)) ** 0.5 / (1 - one ** (k + 1)) if first["use_bias_correction"] else 1.0
        rate, three = d * lr * corrected, math.sqrt(two) if first["beta3"] is None else first["beta3"]
        for p, state, group in self.every():
            if not state:
                state.update({name: coded(torch.zeros_like(p)) for name in ("sum", "mean", "square")}, start=coded(p))
            if group["lr"] > 0.0:
                parts.append(self._averaged(p, state, group, rate, three))
        along, total = (sum(part) for part in zip(*torch.stack(parts).tolist(), strict=True)) if parts else (0.0, 0.0)
        if total == 0.0:
            return
        numerator = first["d_numerator"] * three + d / first["d0"] * rate * along
        estimate = first["d_coef"] * numerator / total
        most = max(first["d_max"], estimate)
        d = min(most, (max(d, estimate) if d == first["d0"] else d) * first["growth_rate"])
        for group in self.param_groups:
            group.update(d=d, d_max=most, d_numerator=numerator, k=k + 1)
        for p, state, group in self.every():
            if group["weight_decay"] and group["decouple"]:
                p.add_(p, alpha=-group["weight_decay"] * rate)
            p.addcdiv_(decoded(state["mean"]), decoded(state["square"]).sqrt_().add_(d * group["eps"]), value=-rate)

    def _averaged(self, p: Any, state: State, group: Group, rate: float, three: float) -> Tensor:
        """Brings the averages up to date; returns how far the weights came along the gradient, and the sum of all."""
        (one, two), d, grad = group["betas"], group["d"], p.grad
        if group["weight_decay"] and not group["decouple"]:
            grad = grad.add(p, alpha=group["weight_decay"])
        along = torch.dot(grad.flatten(), (decoded(state["start"]) - p).flatten())
        mean = decoded(state["mean"]).mul_(one).add_(grad, alpha=d * (1 - one))
        square = decoded(state["square"]).mul_(two).addcmul_(grad, grad, value=d * d * (1 - two))
        by = d if group["safeguard_warmup"] else rate
        total = decoded(state["sum"]).mul_(three).add_(grad, alpha=d / group["d0"] * by)
        state["mean"], state["square"], state["sum"] = coded(mean), coded(square), coded(total)
        return torch.stack([along, total.abs().sum()])
