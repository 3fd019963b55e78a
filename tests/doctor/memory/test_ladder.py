"""What would make a run fit: the ladder of changes, and the blocks that wait in host memory."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from zdoctor.checks.memory import vram_over_budget
from zdoctor.doctor.memory import GIB, predict
from zdoctor.doctor.model import (
    Memory,
    Run,
    SetValue,
    Value,
    Where,
)
from zdoctor.doctor.model.trainer import RUNNER
from zdoctor.doctor.trainers.read import Found, read_config
from zdoctor.fixes.memory import lower_the_peak
from zdoctor.tests.changes import changed
from zdoctor.tests.checks.simpletuner.runs import HEALTHY, SET, TEXT
from zdoctor.tests.models import probed

from .runs import A6000, ON, ROOMY_T4, SAMPLE, SYSTEM, T4, flux, predicted, zimage

FULL = replace(T4, memory_free=int(10.8 * GIB))


def test_a_run_that_fits_is_offered_nothing() -> None:
    assert predicted(zimage(512, quantization="qint8"), A6000).alternatives == ()


def test_the_ladder_goes_down_and_names_the_harmless_first() -> None:
    run = replace(zimage(cache_text_embeddings=False, gradient_checkpointing=False, batch_size=2))
    memory = predicted(run, T4)
    peaks = [step.peak for step in memory.alternatives]
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[-1] < memory.peak.total
    assert memory.alternatives[0].effect == "equivalent"
    keys = [key for step in memory.alternatives for key, _ in step.settings]
    assert {"model/quantize", "train/gradient_checkpointing"} <= set(keys)


@pytest.mark.parametrize("trainer", ["ai-toolkit", RUNNER])
def test_what_the_ladder_promises_is_what_the_changed_run_needs(trainer: str) -> None:
    run = zimage(1024, cache_text_embeddings=False, gradient_checkpointing=False, batch_size=4, trainer=trainer)
    fields = {
        "train/cache_text_embeddings": "cache_text_embeddings",
        "train/gradient_checkpointing": "gradient_checkpointing",
        "train/batch_size": "batch_size",
        "train/gradient_accumulation": "gradient_accumulation",
    }
    for step in predicted(run, T4).alternatives:
        for key, value in step.settings:
            if key in fields:
                run = changed(run, **{fields[key]: value})
            elif key == "model/qtype":
                run = changed(run, precision={"quantization": value, "text_encoder_quantization": value})
            elif key.endswith("/resolution"):
                lower = tuple(replace(dataset, resolutions=tuple(value)) for dataset in run.recipe.datasets)
                run = changed(run, datasets=lower)
            elif key in ("model/low_vram", "model/layer_offloading"):
                run = changed(run, settings={**run.settings, key: Value(value, Where("c"), 0, 4)})
        again = predicted(run, T4)
        assert (again.peak.total, again.peak.total + again.margin) == (step.peak, step.high)


@pytest.mark.parametrize(
    ("run", "free", "offered"),
    [
        (zimage(1024, trainer=RUNNER, quantization="int8"), 28, True),
        (zimage(1024, trainer=RUNNER, quantization="int8"), 6, False),  # host memory, in which the blocks would wait
        (zimage(1024, quantization="qint8"), 28, True),
        (zimage(1024, trainer=RUNNER, quantization="int8", settings={"model/compile": ON}), 28, False),
        (zimage(1024, trainer=RUNNER, quantization="int8", settings={"model/layer_offloading": ON}), 28, False),
        (
            zimage(1024, trainer=RUNNER, settings={"train/gradient_checkpointing_interval": replace(ON, value=2)}),
            28,
            False,
        ),
    ],
)
def test_blocks_are_sent_to_host_memory_where_that_helps_and_goes(run: Run, free: int, offered: bool) -> None:
    memory = predict(run, probed(run), (), replace(SYSTEM, memory_available=free * GIB), (FULL,))
    assert isinstance(memory, Memory)
    keys = [key for step in memory.alternatives for key, _ in step.settings]
    assert ("model/layer_offloading" in keys) is offered
    if offered:  # nothing is lost by it but time; fewer pixels come after it
        assert not any(key.endswith("/resolution") for key in keys[: keys.index("model/layer_offloading")])


def test_layer_offloading_of_flux_is_nothing_to_ai_toolkit() -> None:
    """Its loader of Flux.1 never asks for it; zdoctor's runner does."""
    for trainer, saved in (("ai-toolkit", 0), (RUNNER, 10 * GIB)):
        run = flux(512, trainer=trainer, quantization="qint8")
        away = changed(run, settings={**run.settings, "model/layer_offloading": ON})
        here, there = (predicted(each, ROOMY_T4).phases for each in (run, away))
        steps = [
            next(p for p in phases if p.name == "training step").items["transformer"] for phases in (here, there)
        ]
        assert steps[0] - steps[1] >= saved and (saved or steps[0] == steps[1])
        keys = [key for step in predicted(run, FULL).alternatives for key, _ in step.settings]
        assert ("model/layer_offloading" in keys) is (trainer == RUNNER)


def painting(size: int, **changes: Any) -> Run:
    """A run whose largest phase is that of its samples, which are painted at this size."""
    sides = {f"sample/{side}": replace(ON, value=size) for side in ("width", "height")}
    run = zimage(512, **{"quantization": "qint8", "text_encoder_quantization": "qint8", **changes})
    low = {"model/low_vram": ON}
    samples = (replace(SAMPLE, width=size, height=size),)
    return changed(run, validation={"prompts": samples}, settings={**run.settings, **sides, **low})


@pytest.mark.parametrize("trainer", ["ai-toolkit", RUNNER])
def test_samples_are_painted_smaller_where_they_are_the_peak(trainer: str) -> None:
    run = painting(1536, trainer=trainer)
    totals = [
        max(phase.total for phase in predicted(run, A6000).phases if phase.name.startswith(name))
        for name in ("drawing", "training")
    ]
    assert totals[0] > totals[1]
    gpu = replace(A6000, memory_free=sum(totals) // 2 + GIB // 2)
    steps = predicted(run, gpu).alternatives
    fits = next(number for number, step in enumerate(steps, 1) if step.high <= gpu.memory_free)
    chosen = dict(pair for step in steps[:fits] for pair in step.settings)
    assert chosen == {"sample/width": 768, "sample/height": 768}
    assert {step.effect for step in steps[:fits]} == {"none"}


def test_samples_stay_where_the_step_itself_has_to_shrink() -> None:
    run = painting(1024, quantization=None, text_encoder_quantization=None)
    keys = {
        key for step in predicted(run, replace(T4, memory_free=12 * GIB)).alternatives for key, _ in step.settings
    }
    assert "model/quantize" in keys and not {"sample/width", "train/disable_sampling"} & keys


def test_samples_of_sizes_of_their_own_are_not_changed_one_by_one() -> None:
    run = painting(1536)
    prompts = replace(ON, value=["a cat --w 1536 --h 1536"])
    flagged = changed(run, settings={**run.settings, "sample/prompts": prompts})
    gpu = replace(ROOMY_T4, memory_free=predicted(run, ROOMY_T4).peak.total - GIB // 10)
    keys = [key for step in predicted(flagged, gpu).alternatives for key, _ in step.settings]
    assert keys[:1] == ["train/disable_sampling"]


def test_samples_of_simpletuner_are_painted_smaller_by_its_own_settings() -> None:
    def runs(**changes: Any) -> Run:
        settings = {**HEALTHY, "validation_prompt": "a lantern", "validation_resolution": "1536", **changes}
        data = json.dumps([{**SET, "resolution": 512, "resolution_type": "pixel"}, TEXT]).encode()
        reading = read_config(
            "/st/config.json",
            json.dumps(settings).encode(),
            {},
            beside={"config/data.json": Found("/st/data.json", data)}.get,
        )
        assert isinstance(reading.runs[0], Run)
        return reading.runs[0]

    run = runs()
    memory = predicted(run, A6000)
    assert memory.peak.name == "drawing samples"
    gpu = replace(A6000, memory_free=memory.peak.total - GIB // 10)
    seen = predicted(run, gpu)
    (finding,) = vram_over_budget(run, seen)
    (fix,) = lower_the_peak(finding, run, seen)
    changes = {step.pointer.removeprefix("/"): step.value for step in fix.steps if isinstance(step, SetValue)}
    assert changes == {"validation_resolution": "768x768"}
    cured = runs(**changes)
    assert not list(vram_over_budget(cured, predicted(cured, gpu)))


@pytest.mark.parametrize("trainer", ["ai-toolkit", RUNNER])
def test_on_mps_nothing_becomes_float8(trainer: str) -> None:
    """PyTorch has none there, and the runner refuses it."""
    run = zimage(512, trainer=trainer, device="mps")
    memory = predict(run, probed(run), (), replace(SYSTEM, memory_available=GIB), ())
    assert isinstance(memory, Memory)
    offered = dict(pair for step in memory.alternatives for pair in step.settings)
    assert offered["model/qtype"] == offered["model/qtype_te"] == "qint8"
    here = zimage(512, trainer=trainer, device="cuda")
    assert "model/qtype_te" not in dict(pair for step in predicted(here, FULL).alternatives for pair in step.settings)
