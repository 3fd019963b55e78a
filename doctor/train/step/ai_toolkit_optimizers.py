"""The optimizers that ai-toolkit brings itself, as they compute for trained weights in float32 (27a03a91)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

Group = dict[str, Any]
State = dict[str, Any]
Coded = tuple[Tensor, Tensor]  # codes in int8 and one scale for all of them


class ByTensor(torch.optim.Optimizer):
    """An optimizer that goes from tensor to tensor, and whose state keeps its types when it is loaded."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for p, state, group in self.every():
            self.update(p, p.grad, state, group)

    def every(self) -> Iterator[tuple[Any, State, Group]]:
        """The parameters that have a gradient."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    yield p, self.state[p], group

    def update(self, p: Tensor, grad: Tensor, state: State, group: Group) -> None:
        raise NotImplementedError

    def load_state_dict(self, state_dict: Any) -> None:
        super().load_state_dict(state_dict)  # which makes all of it what the weights are
        every = [p for group in self.param_groups for p in group["params"]]
        for number, kept in state_dict["state"].items():
            place = every[number].device
            self.state[every[number]] = tree_map(
                lambda one, place=place: one.to(place, copy=True) if isinstance(one, Tensor) else one, kept
            )


class _Factored(ByTensor):
    """Updates are gradients by the root of the mean of their squares, kept by row and column, as in Adafactor."""

    eps_inside = True

    def begin(self, p: Tensor, state: State) -> None:
        shapes = {"rows": p.shape[:-1], "columns": p.shape[:-2] + p.shape[-1:]} if p.dim() > 1 else {"all": p.shape}
        state.update({name: p.new_zeros(shape) for name, shape in shapes.items()})

    def scaled(self, grad: Tensor, state: State, group: Group) -> Tensor:
        beta, eps, most = group["beta2"], _first(group["eps"]), group["clip_threshold"]
        early, late = (eps, 0.0) if self.eps_inside else (0.0, eps)
        square = grad * grad
        square.add_(early)
        if grad.dim() > 1:
            rows, columns = (
                state[name].mul_(beta).add_(square.mean(dim).add_(late), alpha=1.0 - beta)
                for name, dim in (("rows", -1), ("columns", -2))
            )
            by_row = (rows / rows.mean(dim=-1, keepdim=True)).rsqrt_().unsqueeze(-1)
            update = torch.mul(by_row, columns.unsqueeze(-2).rsqrt()).mul_(grad)
        else:
            mean: Tensor = state["all"].mul_(beta).add_(square, alpha=1.0 - beta)
            update = mean.add(late).rsqrt().mul_(grad)
        return update.div_((update.norm(2) / update.numel() ** 0.5 / most).clamp_(min=1.0))


class Automagic(_Factored):
    """Each weight has a rate of its own, in eight bits, that grows while its updates keep their sign."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-6,
        min_lr: float = 1e-7,
        max_lr: float = 1e-3,
        lr_bump: float = 1e-6,
        eps: float | Sequence[float] = (1e-30, 1e-3),
        clip_threshold: float = 1.0,
        beta2: float = 0.999,
        weight_decay: float = 0.0,
    ) -> None:
        settings = {"eps": eps, "clip_threshold": clip_threshold, "beta2": beta2, "weight_decay": weight_decay}
        super().__init__(params, {"lr": lr, **settings})
        self.first, self.bump, self.bounds = lr if lr <= 1e-3 else 1e-6, lr_bump, (min_lr, max_lr)

    def update(self, p: Tensor, grad: Tensor, state: State, group: Group) -> None:
        if not state:
            self.begin(p, state)
            state["rates"] = coded(torch.full_like(p, self.first))
            state["was_up"] = torch.zeros_like(p, dtype=torch.bool)
        update = self.scaled(grad, state, group)
        is_up = update > 0
        rates = decoded(state["rates"])
        rates = torch.where(is_up == state["was_up"], rates + self.bump, rates - self.bump).clamp_(*self.bounds)
        state["rates"], state["was_up"] = coded(rates), is_up
        if group["weight_decay"]:
            p.add_(p * -group["weight_decay"] * rates)
        p.sub_(update.mul_(rates))


class Automagic2(_Factored):
    """Each tensor has a rate, which grows while most of its updates keep their sign."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-6,
        min_lr: float = 1e-7,
        max_lr: float = 1e-3,
        lr_bump: float = 1e-6,
        beta2: float = 0.999,
        eps: float = 1e-30,
        clip_threshold: float = 1.0,
        weight_decay: float = 0.0,
        agreement_threshold: float = 0.5,
    ) -> None:
        settings = {"beta2": beta2, "eps": eps, "clip_threshold": clip_threshold, "weight_decay": weight_decay}
        rates = {"min_lr": min_lr, "max_lr": max_lr, "lr_bump": lr_bump, "agreement_threshold": agreement_threshold}
        super().__init__(params, {"lr": lr, **settings, **rates})

    def update(self, p: Tensor, grad: Tensor, state: State, group: Group) -> None:
        begins = not state
        if begins:
            self.begin(p, state)
            state["rate"] = p.new_full((), group["lr"])
            state["was_up"] = torch.zeros_like(p, dtype=torch.bool)
        update = self.scaled(grad, state, group)
        is_up, rate = update > 0, state["rate"]
        if not begins:
            share = (is_up == state["was_up"]).float().mean()
            way = (share >= group["agreement_threshold"]).float() * 2 - 1
            rate.add_(way, alpha=group["lr_bump"]).clamp_(group["min_lr"], group["max_lr"])
        state["was_up"] = is_up
        update.mul_(rate)
        if group["weight_decay"]:
            update.addcmul_(p, rate, value=group["weight_decay"])
        p.sub_(update)


class Automagic3(_Factored):
    """All tensors of a group share a rate, on which the signs of each weight's last updates vote.

    Only those vote that were all alike, for more, or changed each time, for less; a vote weighs as much as its
    update is large. `fused`, ai-toolkit's update amid the backward pass, says here that nothing is clipped.
    """

    eps_inside = False

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-6,
        min_lr: float = 1e-8,
        max_lr: float = 1e3,
        beta2: float = 0.999,
        eps: float = 1e-30,
        clip_threshold: float = 1.0,
        weight_decay: float = 0.0,
        polarity_history: int = 8,
        fused: bool = True,
    ) -> None:
        if min_lr > max_lr:
            raise ValueError(f"min_lr ({min_lr}) must be <= max_lr ({max_lr})")
        settings = {"beta2": beta2, "eps": eps, "clip_threshold": clip_threshold, "weight_decay": weight_decay}
        history = max(2, min(64, int(polarity_history)))
        super().__init__(params, {"lr": lr, "min_lr": min_lr, "max_lr": max_lr, **settings, "history": history})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        super().step(closure)
        for group in self.param_groups:
            states = [self.state[p] for p in group["params"] if p in self.state]
            if votes := [state["votes"] for state in states if state["seen"] == group["history"]]:
                more, every = torch.stack(votes).sum(dim=0)
                factor = torch.exp((more / every.clamp(min=1e-30)).clamp_(-1.0, 1.0))
                for state in states:
                    state["rate"].mul_(factor).clamp_(group["min_lr"], group["max_lr"])

    def update(self, p: Tensor, grad: Tensor, state: State, group: Group) -> None:
        history = group["history"]
        if not state:
            self.begin(p, state)
            state["rate"] = p.new_full((), min(max(group["lr"], group["min_lr"]), group["max_lr"]))
            # the last signs of each weight, one a bit
            state["signs"] = torch.zeros_like(p, dtype=torch.uint8 if history <= 8 else torch.int64)
            state["seen"], state["votes"] = 0, p.new_zeros(2)
        most = group["clip_threshold"]
        update = self.scaled(grad, state, group).clamp_(-most, most)
        state["seen"] = min(history, state["seen"] + 1)
        signs: Tensor = state["signs"]
        signs.bitwise_left_shift_(1).bitwise_or_(update > 0).bitwise_and_(_bits(history, 1))
        if state["seen"] == history:
            weight = update.abs()
            alike = (signs == 0) | (signs == _bits(history, 1))
            changing = (signs == _bits(history, 2)) | (signs == _bits(history, 2) ^ _bits(history, 1))
            votes = (weight * alike).sum() - (weight * changing).sum()
            state["votes"] = torch.stack([votes, weight.sum()])
        if group["weight_decay"]:
            update.add_(p, alpha=group["weight_decay"])
        p.addcmul_(update, state["rate"], value=-1.0)


class Adam8(ByTensor):
    """AdamW whose moments are kept in eight bits, with one scale for each tensor."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decouple: bool = True,
    ) -> None:
        check_adam(betas, eps)
        settings = {"betas": betas, "eps": eps, "weight_decay": weight_decay, "decouple": decouple}
        super().__init__(params, {"lr": lr, **settings})

    def update(self, p: Tensor, grad: Tensor, state: State, group: Group) -> None:
        if not state:
            state.update(step=0, mean=coded(torch.zeros_like(p)), square=coded(torch.zeros_like(p)))
        (one, two), decay = group["betas"], group["weight_decay"]
        state["step"] += 1
        if decay and not group["decouple"]:
            grad = grad.add(p, alpha=decay)
        mean = decoded(state["mean"]).mul_(one).add_(grad, alpha=1 - one)
        square = decoded(state["square"]).mul_(two).addcmul_(grad, grad, value=1 - two)
        if decay and group["decouple"]:
            p.mul_(1 - group["lr"] * decay)
        by = (square.sqrt() / math.sqrt(1 - two ** state["step"])).add_(group["eps"])
        p.addcdiv_(mean, by, value=-group["lr"] / (1 - one ** state["step"]))
        state["mean"], state["square"] = coded(mean), coded(square)


def check_adam(betas: Sequence[float], eps: float) -> None:
    """Raises ValueError for numbers that make no average, as the optimizers of torch do."""
    if not all(0.0 <= beta < 1.0 for beta in betas):
        raise ValueError(f"invalid betas: {betas}")
    if eps < 0.0:
        raise ValueError(f"invalid eps: {eps}")


def coded(values: Tensor) -> Coded:
    most = values.abs().amax()
    scale = torch.where(most > 0, most / 127.0, 1.0)
    return (values / scale).round_().clamp_(-127, 127).to(torch.int8), scale


def decoded(kept: Coded) -> Tensor:
    codes, scale = kept
    return codes.float() * scale


def _first(value: float | Sequence[float]) -> float:
    return float(value[0] if isinstance(value, Sequence) else value)


def _bits(count: int, every: int) -> int:
    """The number with every so many of `count` bits set, from the lowest on, as an int64 has it."""
    number = sum(1 << at for at in range(0, count, every))
    return number - (1 << 64) if number >= 1 << 63 else number
