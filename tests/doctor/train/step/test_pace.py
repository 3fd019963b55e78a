"""A run says why its steps are slower than they should be, and nothing where nobody knows or they are not."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from zdoctor.doctor.train.kernels.quantized_linear import QuantizedLinear, quantize_rows
from zdoctor.doctor.train.step import pace
from zdoctor.doctor.train.step.pace import AFTER, Operations, Pace, PaceWatch

GIB = 1 << 30
WELL = Pace(2.0, 1.0, reading=0.1, computing=0.1, clock=2400, full=2520, held=20 * GIB, memory=24 * GIB)
CAUSES: dict[str, tuple[dict[str, Any], str]] = {
    "memory": ({"spills": True, "held": int(23.8 * GIB)}, "holds 23.8 GiB of the card's 24.0"),
    "another process": ({"other": 4242, "others": 3 * GIB}, "Process 4242 uses the card"),
    "disk": ({"reading": 1.5}, "In 1.5 s of it the batch is read"),
    "processor": ({"reading": 1.5, "computing": 1.2}, "the processor prepares the batch"),
    "clock": ({"clock": 900, "why": "it is too hot"}, r"900 of 2520 MHz (it is too hot)"),
    "attention": ({"plain_attention": True}, "No fused kernel"),
}
HARMLESS: list[dict[str, Any]] = [
    {},
    {"held": int(23.8 * GIB)},  # on Linux it would not fit
    {"spills": True},
    {"other": 4242, "others": GIB // 4},
    {"clock": 0, "full": 0},  # NVML says nothing
]


@pytest.mark.parametrize("name", CAUSES)
def test_each_cause_has_its_words(name: str) -> None:
    changes, words = CAUSES[name]
    slow = replace(WELL, **changes)
    assert words in slow.told() and "takes 2.00 s" in slow.told() and "about 1.00 s" in slow.told()
    assert replace(slow, step=1.4).told() == ""  # as fast as it should be


@pytest.mark.parametrize("changes", HARMLESS)
def test_without_a_cause_nothing_is_said(changes: dict[str, Any]) -> None:
    assert replace(WELL, **changes).told() == ""


def test_operations_are_those_that_are_done() -> None:
    tokens, inputs, outputs = 24, 32, 48
    layer = QuantizedLinear(*quantize_rows(torch.randn(outputs, inputs), "int8"), None, inputs)
    x = torch.randn(tokens, inputs, requires_grad=True)
    with Operations() as once:
        layer(x).sum().backward()
    assert once.count == 2 * 2 * tokens * inputs * outputs  # forward, and the gradient of x
    with Operations() as again:
        checkpoint(layer, x, use_reentrant=False).sum().backward()
    assert again.count == 3 * 2 * tokens * inputs * outputs


@pytest.mark.parametrize(("rate", "told"), [(1e30, 1), (1e-3, 0)])
def test_it_is_told_once(rate: float, told: int, monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    card = SimpleNamespace(total_memory=GIB)
    cuda = SimpleNamespace(memory_reserved=lambda _: 0, get_device_properties=lambda _: card)
    monkeypatch.setattr(pace, "CUDA", cuda)
    monkeypatch.setattr(pace, "products_rate", lambda *_: (rate, {"clock": 300, "full": 2520}))
    monkeypatch.setattr(pace, "has_fused_attention", lambda *_: True)
    watch = PaceWatch(torch.device("cuda"), torch.bfloat16, False, notes.append, [0.0, 0.0])
    layer = nn.Linear(8, 8)
    for _ in range(AFTER + 5):
        with watch.step():
            layer(torch.ones(8, 8))
    assert watch.operations == 2 * 8**3 and len(notes) == told


def test_on_a_processor_nothing_is_watched() -> None:
    watch = PaceWatch(torch.device("cpu"), torch.bfloat16, False, print, [0.0, 0.0])
    with watch.step():
        torch.ones(2) @ torch.ones(2)
    assert watch.steps == []
