"""What would make a run fit: the ladder of changes, and the blocks that wait in host memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from zdoctor.doctor.memory import GIB, predict
from zdoctor.doctor.model import (
    Memory,
    Run,
    Value,
    Where,
)
from zdoctor.doctor.model.families import OWN
from zdoctor.tests.models import probed

from .runs import ON, ROOMY_T4, SYSTEM, T4, flux, predicted, zimage


def test_the_ladder_goes_down_and_names_the_harmless_first() -> None:
    run = replace(zimage(cache_text_embeddings=False, gradient_checkpointing=False, batch_size=2))
    memory = predicted(run, T4)
    peaks = [step.peak for step in memory.alternatives]
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[-1] < memory.peak.total
    assert memory.alternatives[0].effect == "equivalent"
    keys = [key for step in memory.alternatives for key, _ in step.settings]
    assert {"model/quantize", "train/gradient_checkpointing"} <= set(keys)


@pytest.mark.parametrize("trainer", ["ai-toolkit", OWN])
def test_what_the_ladder_promises_is_what_the_changed_run_needs(trainer: str) -> None:
    changed = zimage(1024, cache_text_embeddings=False, gradient_checkpointing=False, batch_size=4, trainer=trainer)
    fields = {
        "train/cache_text_embeddings": "cache_text_embeddings",
        "train/gradient_checkpointing": "gradient_checkpointing",
        "train/batch_size": "batch_size",
        "train/gradient_accumulation": "gradient_accumulation",
    }
    for step in predicted(changed, T4).alternatives:
        for key, value in step.settings:
            if key in fields:
                changed = replace(changed, **{fields[key]: value})
            elif key == "model/qtype":
                changed = replace(changed, quantization=value, text_encoder_quantization=value)
            elif key.endswith("/resolution"):
                lower = tuple(replace(dataset, resolutions=tuple(value)) for dataset in changed.datasets)
                changed = replace(changed, datasets=lower)
            elif key in ("model/low_vram", "model/layer_offloading"):
                changed = replace(changed, settings={**changed.settings, key: Value(value, Where("c"), 0, 4)})
        again = predicted(changed, T4)
        assert (again.peak.total, again.peak.total + again.margin) == (step.peak, step.high)


@pytest.mark.parametrize(
    ("run", "free", "offered"),
    [
        (zimage(1024, trainer=OWN, quantization="int8"), 28, True),
        (zimage(1024, trainer=OWN, quantization="int8"), 6, False),  # host memory, in which the blocks would wait
        (zimage(1024, quantization="qint8"), 28, True),
        (zimage(1024, trainer=OWN, quantization="int8", settings={"model/compile": ON}), 28, False),
        (zimage(1024, trainer=OWN, quantization="int8", settings={"model/layer_offloading": ON}), 28, False),
        (
            zimage(1024, trainer=OWN, settings={"train/gradient_checkpointing_interval": replace(ON, value=2)}),
            28,
            False,
        ),
    ],
)
def test_blocks_are_sent_to_host_memory_where_that_helps_and_goes(run: Run, free: int, offered: bool) -> None:
    memory = predict(run, probed(run), (), replace(SYSTEM, memory_available=free * GIB), (T4,))
    assert isinstance(memory, Memory)
    keys = [key for step in memory.alternatives for key, _ in step.settings]
    assert ("model/layer_offloading" in keys) is offered
    if offered:  # nothing is lost by it but time; fewer pixels come after it
        assert not any(key.endswith("/resolution") for key in keys[: keys.index("model/layer_offloading")])


def test_layer_offloading_of_flux_is_nothing_to_ai_toolkit() -> None:
    """Its loader of Flux.1 never asks for it; zdoctor's runner does."""
    for trainer, saved in (("ai-toolkit", 0), (OWN, 10 * GIB)):
        run = flux(512, trainer=trainer, quantization="qint8")
        away = replace(run, settings={**run.settings, "model/layer_offloading": ON})
        here, there = (predicted(each, ROOMY_T4).phases for each in (run, away))
        steps = [
            next(p for p in phases if p.name == "training step").items["transformer"] for phases in (here, there)
        ]
        assert steps[0] - steps[1] >= saved and (saved or steps[0] == steps[1])
        keys = [key for step in predicted(run, T4).alternatives for key, _ in step.settings]
        assert ("model/layer_offloading" in keys) is (trainer == OWN)
