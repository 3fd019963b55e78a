"""Gradients are bounded as the config's trainer does it: by their norm, value by value, or not at all."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn

from zdoctor.doctor.train.settings.refuse import refuse
from zdoctor.doctor.train.step.trainer import Trainer

from ..patient import run_with, written


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
    parameter = nn.Parameter(torch.zeros(3))
    parameter.grad = torch.tensor([3.0, -4.0, 0.0])
    settings = written(train__grad_clip_method=method)
    run = run_with(optimizer=optimizer, max_grad_norm=limit, settings=settings)
    assert not refuse(run)
    trainer = cast(Any, SimpleNamespace(run=run, parameters={"a": parameter}))
    assert Trainer._clip(trainer).item() == pytest.approx(5.0)
    torch.testing.assert_close(parameter.grad, torch.tensor(left))


def test_another_method_is_refused() -> None:
    assert "grad_clip_method" in refuse(run_with(settings=written(train__grad_clip_method="percentile")))[0]
