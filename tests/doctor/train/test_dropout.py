"""Dropout leaves out the same values in the forward pass and when a block is computed again, and none in previews."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from zdoctor.doctor.train.evaluate import evaluate

from .patient import go, run_with, written
from .test_preserve import trainer

HALF = written(network__dropout=0.5)


def gradients(tiny: Path, circles: Path, cache: Path, checkpointed: bool, index: int = 0) -> list[Tensor]:
    made = trainer(tiny, circles, cache, settings=HALF, gradient_checkpointing=checkpointed)
    (loss,) = made.parts(index)
    return list(torch.autograd.grad(loss, list(made.parameters.values())))


def test_blocks_computed_again_draw_the_same(tiny: Path, circles: Path, tmp_path: Path) -> None:
    plain, again = (gradients(tiny, circles, tmp_path, checkpointed) for checkpointed in (False, True))
    assert all(torch.equal(one, other) for one, other in zip(plain, again, strict=True))


def test_half_of_the_inner_values_are_left_out(tiny: Path, circles: Path, tmp_path: Path) -> None:
    """Per token and rank; what is left counts twice, so that the mean stays."""
    made = trainer(tiny, circles, tmp_path, settings=HALF)
    module = next(iter(made.network.values()))
    assert module.training
    width = module.get_parameter("lora_A").shape[1]
    module.base = torch.nn.Linear(width, module.get_parameter("lora_B").shape[0], bias=False)
    torch.nn.init.zeros_(module.base.weight)
    x = torch.randn(4000, width, generator=torch.Generator().manual_seed(0))
    whole = x @ module.get_parameter("lora_A").T @ module.get_parameter("lora_B").T
    torch.manual_seed(0)
    mean = torch.stack([module(x) for _ in range(64)]).mean(dim=0)
    assert (mean - whole).square().mean() < 0.1 * whole.square().mean()
    assert not torch.equal(module(x), module(x))
    module.eval()
    assert torch.equal(module(x), module(x))


def test_evaluation_leaves_nothing_out(tiny: Path, circles: Path, tmp_path: Path) -> None:
    losses = []
    for settings in ({}, HALF):
        made = trainer(tiny, circles, tmp_path, settings=settings)
        losses.append(evaluate(made, made.order.batch(0)[:1], lambda: False))
        assert all(module.training for module in made.network.values())
    assert losses[0] == losses[1]


def test_a_run_goes_on_exactly(tiny: Path, circles: Path, tmp_path: Path) -> None:
    straight = go(run_with(settings=HALF), tiny, circles, tmp_path / "a").losses
    go(run_with(settings=HALF, steps=2), tiny, circles, tmp_path / "b")
    assert go(run_with(settings=HALF), tiny, circles, tmp_path / "b").losses == straight
    assert straight[1:] != pytest.approx(go(run_with(), tiny, circles, tmp_path / "c").losses[1:], rel=1e-6)
