"""The optimizers that ai-toolkit brings make its steps: the numbers of its classes, and beside these where they are.

The numbers were made by the classes of 27a03a91 (`PYTHONPATH=CHECKOUT` lets the last test run them again).
"""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from zdoctor.doctor.train.settings.refuse import refuse
from zdoctor.doctor.train.step.optimizer import clip_gradients, make_optimizer
from zdoctor.tests.doctor.trainers.test_every_key import AI_TOOLKIT, run_of

from ..patient import run_with

CPU = torch.device("cpu")
# The module and the class there, by the name in a config.
THEIRS = {
    "automagic": "automagic.Automagic",
    "automagic2": "automagic2.Automagic2",
    "automagic3": "automagic3.Automagic3",
    "adamw8": "adam8bit.Adam8bit",
    "prodigy8bit": "prodigy_8bit.Prodigy8bit",
}
BUMPS = {"weight_decay": 0.1, "lr_bump": 1e-4}
WARM = {"weight_decay": 0.1, "use_bias_correction": True, "safeguard_warmup": True, "growth_rate": 1.5, "d_coef": 2.0}
# Name, settings, learning rate, steps; the sum of squares that is left of each parameter.
WAYS: list[tuple[str, dict[str, Any], float, int, tuple[float, ...]]] = [
    ("automagic", {}, 5e-4, 14, (103.7146, 0.0024668, 23.75154)),
    ("automagic", {**BUMPS, "max_lr": 6e-4, "beta2": 0.9}, 5e-4, 14, (103.4829, 0.00302075, 23.69487)),
    ("automagic", {}, 1e-2, 3, (104.4102, 3.314237e-09, 23.91946)),  # more than it takes
    ("automagic2", {}, 5e-4, 14, (103.7105, 0.002491036, 23.75066)),
    ("automagic2", {**BUMPS, "agreement_threshold": 0.8}, 5e-4, 14, (104.231, 0.0001353008, 23.86451)),
    ("automagic3", {}, 5e-2, 14, (52.99654, 37.86201, 14.25726)),
    (
        "automagic3",
        {"polarity_history": 3, "weight_decay": 0.1, "eps": 1e-3, "fused": False},
        5e-2,
        14,
        (61.41665, 103.023, 23.97106),
    ),
    ("automagic3", {"polarity_history": 11}, 5e-2, 14, (63.73009, 14.41477, 14.35745)),
    ("automagic3", {"polarity_history": 64, "max_lr": 0.04}, 1e-3, 70, (99.07425, 0.1424439, 22.4502)),
    ("adamw8", {"weight_decay": 0.1}, 5e-3, 14, (97.04852, 0.1998122, 22.09157)),
    ("adamw8", {"weight_decay": 0.1, "decouple": False}, 5e-3, 14, (98.07018, 0.2007615, 22.33486)),
    ("prodigy8bit", {}, 1.0, 3, (31012.86, 9853.059, 288.7863)),
    ("prodigy8bit", WARM, 1.0, 3, (182.9875, 23.90103, 39.9165)),
    ("prodigy8bit", {"weight_decay": 0.1, "decouple": False, "beta3": 0.9}, 1.0, 3, (26280.76, 15439.69, 185.1217)),
]


def start() -> list[nn.Parameter]:
    """What a DoRA trains of a Linear: A, B and the lengths of the rows."""
    generator = torch.Generator().manual_seed(0)
    shapes = (4, 24), (24, 4), (24,)
    return [nn.Parameter(torch.randn(shape, generator=generator) * (shape != (24, 4))) for shape in shapes]


def walk(optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter], count: int) -> list[Tensor]:
    """Steps towards a point, by gradients with noise; through a backward pass, as hooks want it."""
    generator = torch.Generator().manual_seed(1)
    ends = [torch.randn(p.shape, generator=generator) for p in parameters]
    for _ in range(count):
        noise = [torch.randn(p.shape, generator=generator) for p in parameters]
        parts = zip(parameters, ends, noise, strict=True)
        losses = [(p - end).square().sum() / 2 + (p * one).sum() for p, end, one in parts]
        torch.stack(losses).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    return [p.detach() for p in parameters]


def ours(name: str, settings: dict[str, Any], rate: float, count: int) -> list[Tensor]:
    parameters = start()
    return walk(make_optimizer(name, settings, rate, parameters, CPU, lambda _: None), parameters, count)


@pytest.mark.parametrize(("name", "settings", "rate", "count", "left"), WAYS)
def test_steps_are_those_of_ai_toolkit(
    name: str, settings: dict[str, Any], rate: float, count: int, left: tuple[float, ...]
) -> None:
    found = [p.square().sum().item() for p in ours(name, settings, rate, count)]
    assert found == pytest.approx(left, rel=1e-3)  # where a code is rounded otherwise on another CPU


@pytest.mark.parametrize(("name", "settings", "rate", "count", "left"), WAYS)
def test_steps_are_those_of_its_classes(
    name: str, settings: dict[str, Any], rate: float, count: int, left: tuple[float, ...]
) -> None:
    pytest.importorskip("toolkit.optimizers.optimizer_utils")
    module, _, kind = THEIRS[name].partition(".")
    there: Any = importlib.import_module(f"toolkit.optimizers.{module}")
    if hasattr(there, "copy_stochastic"):  # which copies float32, but not on a CPU
        there.copy_stochastic = lambda target, source: target.copy_(source)
    parameters = start()
    eps = {} if name.startswith("automagic") else {"eps": 1e-6}
    theirs = walk(
        getattr(there, kind)([{"params": parameters, "lr": rate}], lr=rate, **eps, **settings), parameters, count
    )
    for one, other in zip(ours(name, settings, rate, count), theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-6, atol=2e-6)


def test_another_rate_than_automagic_takes_is_told() -> None:
    notes: list[str] = []
    make_optimizer("automagic", {}, 1e-2, start(), CPU, notes.append)
    assert notes == ["Automagic begins at a learning rate of 1e-06 here: 0.01 is above what it takes, 0.001."]


@pytest.mark.parametrize(
    ("name", "settings", "left"),
    [("automagic", {}, 0.6), ("automagic3", {}, 3.0), ("automagic3", {"fused": False}, 0.6)],
)
def test_gradients_are_bounded_as_in_ai_toolkit(name: str, settings: dict[str, Any], left: float) -> None:
    """Which steps amid the backward pass, before it bounds them."""
    parameter = nn.Parameter(torch.zeros(2))
    parameter.grad = torch.tensor([3.0, -4.0])
    run = run_with(optimizer=name, optimizer_settings=settings, max_grad_norm=1.0)
    assert not refuse(run)
    clip_gradients(run.recipe, [parameter])
    assert parameter.grad[0].item() == pytest.approx(left)


def test_the_name_that_its_form_has_for_prodigy() -> None:
    train: dict[str, Any] = {"noise_scheduler": "flowmatch", "dtype": "bf16", "optimizer": "prodigyopt"}
    run = run_of("ai-toolkit", {**AI_TOOLKIT, "train": train})
    assert run is not None and run.recipe.optimizer.name == "prodigy"
