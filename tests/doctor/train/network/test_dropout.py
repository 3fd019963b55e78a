"""Dropout leaves out the same values in the forward pass and when a block is computed again, and none in previews."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from zdoctor.doctor.train.network.lora_linear import Dropout, LoraLinear

from ..patient import go, run_with
from ..step.test_output_preservation import parts, trainer

HALF = {"dropout": 0.5}


def gradients(tiny: Path, circles: Path, cache: Path, checkpointed: bool, settings: Any) -> list[Tensor]:
    made = trainer(tiny, circles, cache, network=settings, gradient_checkpointing=checkpointed)
    (loss,) = parts(made, 0)
    parameters = list(made.parameters.values())
    return list(torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True))


@pytest.mark.parametrize("settings", [HALF, {"rank_dropout": 0.5, "module_dropout": 0.5}])
def test_blocks_computed_again_draw_the_same(tiny: Path, circles: Path, tmp_path: Path, settings: Any) -> None:
    plain, again = (gradients(tiny, circles, tmp_path, checkpointed, settings) for checkpointed in (False, True))
    assert all(torch.equal(one, other) for one, other in zip(plain, again, strict=True))


@pytest.mark.parametrize("shape", [(3, 5, 6), (3, 6)])
def test_ranks_and_linears_are_left_out_as_in_kohyas_trainers(shape: tuple[int, ...]) -> None:
    """Their formula on the same random numbers: a mask of sample and rank, the rest the larger for it."""
    base = nn.Linear(6, 4)
    lora = LoraLinear(base, (4, 6), 8, Dropout(ranks=0.25), torch.Generator().manual_seed(0), scale=0.5)
    nn.init.normal_(lora.lora_B)
    x = torch.randn(shape)
    torch.manual_seed(1)
    ours = lora(x)
    torch.manual_seed(1)
    mask = torch.rand((3, 8)) > 0.25
    low = x @ lora.lora_A.T * (mask.unsqueeze(1) if len(shape) == 3 else mask)
    torch.testing.assert_close(ours, base(x) + low @ lora.lora_B.T * 0.5 * (1.0 / (1.0 - 0.25)))
    lora.dropout = Dropout(modules=0.5)
    kept = [not torch.equal(lora(x), base(x)) for _ in range(200)]
    assert 70 < sum(kept) < 130
    lora.eval()
    assert not torch.equal(lora(x), base(x))


def test_half_of_the_inner_values_are_left_out(tiny: Path, circles: Path, tmp_path: Path) -> None:
    """Per token and rank; what is left counts twice, so that the mean stays."""
    made = trainer(tiny, circles, tmp_path, network=HALF)
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
        made = trainer(tiny, circles, tmp_path, network=settings)
        losses.append(made.validation_loss(made.batches.batch(0)[:1], lambda: False))
        assert all(module.training for module in made.network.values())
    assert losses[0] == losses[1]


def test_a_run_goes_on_exactly(tiny: Path, circles: Path, tmp_path: Path) -> None:
    straight = go(run_with(network=HALF), tiny, circles, tmp_path / "a").losses
    go(run_with(network=HALF, steps=2), tiny, circles, tmp_path / "b")
    assert go(run_with(network=HALF), tiny, circles, tmp_path / "b").losses == straight
    assert straight[1:] != pytest.approx(go(run_with(), tiny, circles, tmp_path / "c").losses[1:], rel=1e-6)
