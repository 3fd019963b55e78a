"""Optimizers step as published, go on bit for bit from their saved state, and need the memory that is predicted."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from zdoctor.doctor.memory.bytes import state_bytes
from zdoctor.doctor.train import TrainError
from zdoctor.doctor.train.settings.names import CLASSES, OPTIMIZERS, class_path
from zdoctor.doctor.train.settings.refuse import refuse
from zdoctor.doctor.train.step.optimizer import as_switched, clip_gradients, make_optimizer

from ..patient import run_with

CPU = torch.device("cpu")
RATE = 1e-2


def need(name: str) -> None:
    if path := class_path(name):
        pytest.importorskip(path.partition(".")[0])


def silent(_: str) -> None: ...


def start(rank: int = 4, wide: int = 24) -> list[nn.Parameter]:
    """A LoRA as it begins: A is random, B is zero."""
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(rank, wide, generator=generator)), nn.Parameter(torch.zeros(wide, rank))]


def steps(optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter], numbers: range) -> None:
    if switched := as_switched(optimizer):
        switched.train()
    for number in numbers:
        generator = torch.Generator().manual_seed(number)
        for parameter in parameters:
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.step()


def trained(name: str, settings: dict[str, Any], count: int) -> list[Tensor]:
    parameters = start()
    steps(make_optimizer(name, settings, RATE, parameters, CPU, silent), parameters, range(count))
    return [parameter.detach() for parameter in parameters]


@pytest.mark.parametrize("name", dict.fromkeys((*OPTIMIZERS, *CLASSES)))
def test_the_state_is_kept_bit_for_bit(name: str) -> None:
    need(name)
    whole = trained(name, {}, 8)
    first = start()
    optimizer = make_optimizer(name, {}, RATE, first, CPU, silent)
    steps(optimizer, first, range(5))
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    second = [nn.Parameter(parameter.detach().clone()) for parameter in first]
    again = make_optimizer(name, {}, RATE, second, CPU, silent)
    again.load_state_dict(torch.load(file, weights_only=True))
    steps(again, second, range(5, 8))
    assert all(torch.equal(a, b) for a, b in zip(whole, second, strict=True))


@pytest.mark.parametrize("name", ["adamw", "adam"])
def test_a_state_that_was_made_tensor_by_tensor_is_gone_on_with(name: str) -> None:
    """As those of older versions were, and those of a run that began on a GPU."""
    first = start()
    plain = make_optimizer(name, {"foreach": False}, RATE, first, CPU, silent)
    steps(plain, first, range(5))
    second = [nn.Parameter(parameter.detach().clone()) for parameter in first]
    whole = make_optimizer(name, {}, RATE, second, CPU, silent)
    whole.load_state_dict(copy.deepcopy(plain.state_dict()))
    steps(plain, first, range(5, 8))
    steps(whole, second, range(5, 8))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(
    "name",
    [
        *("adamw", "adam", "adafactor", "lion", "prodigy", "adagrad"),
        *("automagic", "automagic2", "automagic3", "adamw8", "prodigy8bit"),
    ],
)
def test_the_state_is_as_large_as_predicted(name: str) -> None:
    need(name)
    parameters = start(rank=16, wide=3840)
    optimizer = make_optimizer(name, {}, RATE, parameters, CPU, silent)
    steps(optimizer, parameters, range(1))
    held = sum(v.nbytes for v in tree_leaves(dict(optimizer.state)) if isinstance(v, Tensor))
    assert held / sum(p.numel() for p in parameters) == pytest.approx(state_bytes(name), rel=0.15)


def by_hand(rule: Any, count: int) -> list[Tensor]:
    """What `rule(parameter, gradient, state, step)` makes of the same gradients."""
    parameters = [parameter.detach().clone() for parameter in start()]
    states: list[dict[str, Tensor]] = [{} for _ in parameters]
    for number in range(count):
        generator = torch.Generator().manual_seed(number)
        for parameter, state in zip(parameters, states, strict=True):
            rule(parameter, torch.randn(parameter.shape, generator=generator), state, number + 1)
    return parameters


def adamw(p: Tensor, g: Tensor, state: dict[str, Tensor], step: int) -> None:
    p.mul_(1 - RATE * 0.01)
    m = state["m"] = 0.9 * state.get("m", torch.zeros_like(p)) + 0.1 * g
    v = state["v"] = 0.999 * state.get("v", torch.zeros_like(p)) + 0.001 * g * g
    p.sub_(RATE * (m / (1 - 0.9**step)) / ((v / (1 - 0.999**step)).sqrt() + 1e-6))


def lion(p: Tensor, g: Tensor, state: dict[str, Tensor], step: int) -> None:
    m = state.get("m", torch.zeros_like(p))
    p.mul_(1 - RATE * 0.1).sub_(RATE * (0.9 * m + 0.1 * g).sign())
    state["m"] = 0.99 * m + 0.01 * g


def adafactor(p: Tensor, g: Tensor, state: dict[str, Tensor], step: int) -> None:
    """Factored second moments, decay 1 - step**-0.8, updates clipped to a root mean square of 1, no own rate."""
    decay = 1 - step**-0.8
    square = g * g + 1e-30
    rows = state["r"] = decay * state.get("r", torch.zeros(p.shape[0])) + (1 - decay) * square.mean(1)
    columns = state["c"] = decay * state.get("c", torch.zeros(p.shape[1])) + (1 - decay) * square.mean(0)
    update = g / (rows[:, None] * columns[None, :] / rows.mean()).sqrt()
    p.sub_(RATE * update / update.square().mean().sqrt().clamp(min=1))


@pytest.mark.parametrize(
    ("name", "settings", "rule"),
    [
        ("adamw", {"weight_decay": 0.01}, adamw),
        ("adamw8bit", {"weight_decay": 0.01}, adamw),
        ("lion", {"weight_decay": 0.1}, lion),
        ("lion8bit", {"weight_decay": 0.1, "betas": [0.9, 0.99]}, lion),
        ("adafactor", {}, adafactor),
        ("adafactor", {"eps": [1e-30, 1e-3], "relative_step": False, "warmup_init": False}, adafactor),
    ],
)
def test_steps_follow_the_published_rule(name: str, settings: dict[str, Any], rule: Any) -> None:
    need(name)
    for ours, theirs in zip(trained(name, settings, 6), by_hand(rule, 6), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_prodigy_is_that_of_the_package_with_the_rate_as_written() -> None:
    package = pytest.importorskip("prodigyopt")
    theirs = start()
    steps(package.Prodigy(theirs, lr=RATE, eps=1e-6, d_coef=2.0, weight_decay=0.1), theirs, range(6))
    for one, other in zip(trained("prodigy", {"d_coef": 2.0, "weight_decay": 0.1}, 6), theirs, strict=True):
        assert torch.equal(one, other.detach())
    notes: list[str] = []
    make_optimizer("prodigy", {}, 1e-4, start(), CPU, notes.append)
    assert ["made for lr: 1" in note for note in notes] == [True]
    notes.clear()
    optimizer = make_optimizer("prodigy", {"growth_rate": 1.02}, 1.0, start(), CPU, notes.append)
    assert notes == [] and optimizer.param_groups[0]["eps"] == 1e-6


def test_eight_bit_on_a_processor_says_what_it_does() -> None:
    need("lion8bit")
    notes: list[str] = []
    make_optimizer("lion8bit", {}, RATE, start(), CPU, notes.append)
    (note,) = notes
    assert "Plain Lion is used" in note and "3 more bytes" in note


def test_settings_out_of_range_are_named() -> None:
    with pytest.raises(TrainError, match=r"adamw does not take its settings.*beta"):
        make_optimizer("adamw", {"betas": [2.0, 0.9]}, RATE, start(), CPU, silent)


@pytest.mark.parametrize(
    ("method", "optimizer", "limit", "left"),
    [
        (None, "adamw", 1.0, [0.6, -0.8, 0.0]),
        (None, "adafactor", 1.0, [3.0, -4.0, 0.0]),  # ai-toolkit leaves its gradients alone
        ("norm", "adafactor", 1.0, [0.6, -0.8, 0.0]),
        ("norm", "adamw", 0.0, [3.0, -4.0, 0.0]),
        ("value", "adamw", 3.5, [3.0, -3.5, 0.0]),
        ("value", "adamw", 0.0, [3.0, -4.0, 0.0]),
    ],
)
def test_gradients_are_bounded(method: str | None, optimizer: str, limit: float, left: list[float]) -> None:
    """As the config's trainer does it: by their norm, value by value, or not at all."""
    parameter = nn.Parameter(torch.zeros(3))
    parameter.grad = torch.tensor([3.0, -4.0, 0.0])
    run = run_with(optimizer=optimizer, max_grad_norm=limit, clip_method=method)
    assert not refuse(run)
    assert clip_gradients(run.recipe, [parameter]).item() == pytest.approx(5.0)
    torch.testing.assert_close(parameter.grad, torch.tensor(left))


def test_another_method_of_bounding_is_refused() -> None:
    assert "clip_method percentile" in refuse(run_with(clip_method="percentile"))[0]
