"""The bytes of an optimizer's state, beside what the packages hold after two steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from lion_pytorch import Lion  # type: ignore[import-untyped]
from prodigyopt import Prodigy  # type: ignore[import-untyped]
from transformers.optimization import Adafactor

from zdoctor.doctor.memory.bytes import state_bytes

Make = Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]
OPTIMIZERS: list[tuple[str, Make]] = [
    ("adamw", lambda p: torch.optim.AdamW(p, 1e-3)),
    ("torch-adam", lambda p: torch.optim.Adam(p, 1e-3)),
    ("torch-radam", lambda p: torch.optim.RAdam(p, 1e-3)),
    ("torch-adadelta", lambda p: torch.optim.Adadelta(p, 1e-3)),
    ("torch-adagrad", lambda p: torch.optim.Adagrad(p, 1e-3)),
    ("torch-rmsprop", lambda p: torch.optim.RMSprop(p, 1e-3)),
    ("torch-asgd", lambda p: torch.optim.ASGD(p, 1e-3)),
    ("torch-sgd", lambda p: torch.optim.SGD(p, 1e-3)),
    ("SGDNesterov", lambda p: torch.optim.SGD(p, 1e-3, momentum=0.9, nesterov=True)),
    ("Muon", lambda p: torch.optim.Muon(p, 1e-3)),
    ("optimi-lion", lambda p: Lion(p, 1e-4)),
    ("prodigy", Prodigy),
    ("torch-adafactor", Adafactor),
]


@pytest.mark.parametrize(("name", "make"), OPTIMIZERS, ids=[name for name, _ in OPTIMIZERS])
def test_the_state_that_an_optimizer_holds(name: str, make: Make) -> None:
    weight = torch.nn.Parameter(torch.randn(512, 16))  # a matrix of a LoRA of rank 16
    optimizer = make([weight])
    for _ in range(2):
        weight.grad = torch.randn_like(weight)
        optimizer.step()
    held = sum(tensor.numel() * tensor.element_size() for tensor in tensors(optimizer.state[weight]))
    assert held / weight.numel() == pytest.approx(state_bytes(name), abs=0.2)


def tensors(state: dict[str, Any]) -> list[torch.Tensor]:
    return [value for value in state.values() if isinstance(value, torch.Tensor)]


@pytest.mark.parametrize(
    ("name", "like"),
    [
        ("bnb-lion", "lion"),
        ("bnb-lion8bit-paged", "lion8bit"),
        ("PagedLion8bit", "lion8bit"),
        ("bitsandbytes.optim.AdEMAMix8bit", "ademamix8bit"),
        ("bnb-adamw8bit", "adamw8bit"),
        ("ao-adamw8bit", "adamw8bit"),
        ("PagedAdamW8bit", "adamw8bit"),
        ("PagedAdamW32bit", "adamw"),
        ("DAdaptation", "DAdaptAdam"),
    ],
)
def test_whose_it_is_changes_nothing(name: str, like: str) -> None:
    assert state_bytes(name) == state_bytes(like)
