"""Noise levels follow the distributions that ai-toolkit draws from."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from zdoctor.doctor.train.names import FAVOURS, SCHEMES
from zdoctor.doctor.train.timesteps import COUNT, draw, times, weights


def many(scheme: str, favour: str = "balanced") -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return draw(scheme, favour, 40_000, generator)[0]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_tables_fall_from_noise_to_clean(scheme: str) -> None:
    table = times(scheme, torch.Generator().manual_seed(0))
    assert table.shape == (COUNT,)
    assert (table[:-1] >= table[1:]).all()
    assert table.min() > 0.0 and table.max() <= 1.0


@pytest.mark.parametrize(
    ("scheme", "quantiles"),
    [
        ("sigmoid", (0.338, 0.501, 0.662)),
        ("linear", (0.25, 0.5, 0.75)),
        ("weighted", (0.25, 0.5, 0.75)),
        ("shift", (0.5, 0.75, 0.9)),
    ],
)
def test_quantiles(scheme: str, quantiles: tuple[float, ...]) -> None:
    found = torch.quantile(many(scheme), torch.tensor([0.25, 0.5, 0.75]))
    torch.testing.assert_close(found, torch.tensor(quantiles), rtol=0, atol=0.03)


def test_content_prefers_noise_and_style_detail() -> None:
    medians = {favour: many("linear", favour).median().item() for favour in FAVOURS}
    assert medians["content"] == pytest.approx(0.875, abs=0.01)
    assert medians["style"] == pytest.approx(0.125, abs=0.01)


def test_only_weighted_weighs() -> None:
    value = weights()
    assert value.mean().item() == pytest.approx(1.0)
    assert int(value.argmax()) == 124
    assert value[[0, 400, 999]].tolist() == pytest.approx([0.906, 1.083, 0.447], abs=0.01)
    for scheme in SCHEMES:
        _, weight = draw(scheme, "balanced", 50, torch.Generator().manual_seed(0))
        assert (len(set(weight.tolist())) > 1) == (scheme == "weighted")
