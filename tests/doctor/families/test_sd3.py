"""Stable Diffusion 3.5: its tensors are those of the real class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from zdoctor.doctor.families.models.sd3 import LARGE, MEDIUM
from zdoctor.doctor.families.tensors import needed_tensors, why_not


@pytest.mark.parametrize("config", [MEDIUM, LARGE, {}, {**MEDIUM, "num_layers": 3, "dual_attention_layers": [1]}])
def test_its_tensors_are_those_of_the_class(config: Mapping[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    diffusers = pytest.importorskip("diffusers")
    with torch.device("meta"):
        built = diffusers.SD3Transformer2DModel(**config)
    assert needed_tensors("SD3Transformer2DModel", config) == {
        name: tuple(tensor.shape) for name, tensor in built.state_dict().items()
    }


def test_blocks_that_attend_twice_are_numbers() -> None:
    assert "dual_attention_layers" in why_not("SD3Transformer2DModel", {**MEDIUM, "dual_attention_layers": ["a"]})
