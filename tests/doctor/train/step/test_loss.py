"""Guidance losses do what ai-toolkit's lines do (SDTrainer.py, 27a03a91), on numbers small enough to follow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from zdoctor.doctor.model.objective import GuidanceTarget, Loss
from zdoctor.doctor.train.step.loss import guidance_scales, guided_target, sample_losses, thresholds
from zdoctor.tests.doctor.trainers.kohya.runs import run_of as kohya
from zdoctor.tests.doctor.trainers.kohya.runs import trained
from zdoctor.tests.doctor.trainers.simpletuner.runs import trained as simpletuner

from ..patient import go, run_with, written
from .test_output_preservation import parts, trainer

TARGET = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
BLANK = torch.tensor([[[[1.0, 1.0], [1.0, 1.0]]]])


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (GuidanceTarget(3.0, 3.0, "", False, False), 1.0 + 3.0 * (TARGET - 1.0)),
        # at a quarter of the noise a scale of 3 has fallen to 1.5
        (GuidanceTarget(3.0, 3.0, "", False, True), 1.0 + 1.5 * (TARGET - 1.0)),
        # the blank answer times 10 / 4 fits the target best
        (GuidanceTarget(3.0, 3.0, "", True, False), 2.5 + 3.0 * (TARGET - 2.5)),
    ],
)
def test_the_guided_target(how: GuidanceTarget, expected: torch.Tensor) -> None:
    said = guided_target(TARGET, BLANK, guidance_scales(how, 1, torch.Generator()), torch.tensor([0.25]), how)
    torch.testing.assert_close(said, expected)


def test_huber_losses_are_squares_near_zero_and_lines_far_away() -> None:
    t, zero = torch.tensor([0.2, 0.8]), torch.zeros(2, 1, 1, 1)
    for kind, near, far in (("huber", 1.0, 0.2), ("smooth_l1", 10.0, 2.0)):
        how = Loss(kind, threshold=0.1)
        small, large = (sample_losses(how, zero + miss, zero, None, t) for miss in (1e-2, 100.0))
        torch.testing.assert_close(small, torch.full((2,), near * 1e-4), rtol=1e-2, atol=0)
        torch.testing.assert_close(large, torch.full((2,), far * 100), rtol=1e-2, atol=0)


def test_thresholds_follow_the_noise() -> None:
    """sd-scripts' exponential one of 1000 t (train_util.py), SimpleTuner's by signal and noise (common.py)."""
    t = torch.tensor([0.0, 0.5, 1.0])
    assert thresholds(Loss(threshold=0.2, threshold_scale=2.0), t).tolist() == pytest.approx([0.4] * 3)
    falling = Loss(threshold=0.01, threshold_schedule="exponential", threshold_scale=3.0)
    assert thresholds(falling, t).tolist() == pytest.approx([3.0, 0.3, 0.03])
    ratio = Loss(threshold=0.1, threshold_schedule="snr")
    assert thresholds(ratio, t).tolist() == pytest.approx([0.1 + 0.9 / 101**2, 0.1 + 0.9 / 4, 1.0], rel=1e-3)


def test_whose_huber_losses_are_obeyed() -> None:
    words = {"loss_type": "huber", "huber_schedule": "exponential", "huber_c": 0.2, "huber_scale": 2.0}
    loss = trained(kohya(options=words)).recipe.loss
    assert (loss.type, loss.threshold, loss.threshold_schedule, loss.threshold_scale) == (
        "huber",
        0.2,
        "exponential",
        2,
    )
    loss = simpletuner({"loss_type": "smooth_l1"}).recipe.loss
    assert (loss.type, loss.threshold, loss.threshold_schedule) == ("smooth_l1", 0.1, "snr")


def test_what_a_config_asks_for() -> None:
    plain = run_with().recipe.loss
    assert plain.guidance is None and plain.differential_guidance is None
    asked = written(
        train__do_guidance_loss=True, train__guidance_loss_target=[2, 4], train__unconditional_prompt="no"
    )
    how = run_with(settings=asked).recipe.loss.guidance
    assert how is not None and (how.low, how.high, how.prompt) == (2.0, 4.0, "no")
    scales = guidance_scales(how, 100, torch.Generator().manual_seed(0))
    assert 2.0 <= scales.min() < 2.2 and 3.8 < scales.max() <= 4.0
    apart = run_with(settings=written(train__do_differential_guidance=True))
    assert apart.recipe.loss.differential_guidance == 3.0


def test_differential_guidance_scales_loss_and_gradient(tiny: Path, circles: Path, tmp_path: Path) -> None:
    settings = {"train__do_differential_guidance": True, "train__differential_guidance_scale": 2.0}
    losses, gradients = [], []
    for asked in ({}, settings):
        made = trainer(tiny, circles, tmp_path, settings=written(**asked))
        (loss,) = parts(made, 0)
        losses.append(loss.item())
        gradients.append(torch.autograd.grad(loss, list(made.parameters.values())))
    assert losses[1] == pytest.approx(4 * losses[0], rel=1e-5)
    for once, twice in zip(*gradients, strict=True):
        torch.testing.assert_close(twice, 2 * once, rtol=1e-4, atol=1e-7)


def test_guidance_loss_moves_the_target_away_from_the_blank_prompt(
    tiny: Path, circles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = trainer(tiny, circles, tmp_path, settings=written(train__do_guidance_loss=True))
    said: list[tuple[Any, torch.Tensor]] = []
    real = made.objective.predict

    def watched(clean: Any, noise: Any, t: Any, control: Any, captions: Any, items: Any) -> torch.Tensor:
        said.append((captions, real(clean, noise, t, control, captions, items)))
        said.append((clean, noise))
        return said[-2][1]

    monkeypatch.setattr(made.objective, "predict", watched)
    (loss,) = parts(made, 0)
    (blank_words, blank), (clean, noise), (words, guess), _ = said
    assert set(blank_words) == {""} and "" not in words
    assert not blank.requires_grad and guess.requires_grad
    expected = (guess - (blank + 3.0 * (noise - clean - blank))).square().mean()
    torch.testing.assert_close(loss, expected)


def test_a_run_with_guidance_loss(tiny: Path, circles: Path, tmp_path: Path) -> None:
    settings = written(train__do_guidance_loss=True, train__guidance_loss_target=[2.0, 3.0])
    assert Path(go(run_with(settings=settings), tiny, circles, tmp_path).lora).is_file()
