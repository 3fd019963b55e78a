"""The memory of zdoctor's own runner, phase by phase."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from zdoctor.doctor.families.tensors import needed_tensors
from zdoctor.doctor.memory import GIB, predict
from zdoctor.doctor.memory.runner import PIECE, quantizing
from zdoctor.doctor.model import (
    Component,
    Memory,
    ModelFolder,
    Run,
    Value,
    Where,
)
from zdoctor.doctor.model.trainer import RUNNER
from zdoctor.doctor.train.kernels.quantized_linear import Quantization, quantize_rows
from zdoctor.doctor.train.rehearsal.alive import Alive
from zdoctor.doctor.train.weights import materialize
from zdoctor.tests.changes import changed

from .runs import A6000, ON, ROOMY_T4, SAMPLE, SYSTEM, T4, TRACED, chroma, flux, predicted, qwen_image, zimage

# The same where zdoctor's runner multiplies in float16 on an int8 base: (run, resolution, batch size, checkpointing,
# traced by benchmarks/trace.py).
TRACED_HALF = [
    (zimage, 512, 1, True, 7.44),
    (zimage, 1024, 1, True, 10.13),
    (zimage, 1024, 2, True, 13.93),
    (zimage, 512, 1, False, 20.55),
    (flux, 512, 1, True, 13.85),
    (flux, 1024, 1, True, 16.86),
    (flux, 1024, 2, True, 21.38),
    (flux, 512, 1, False, 30.97),
]


@pytest.mark.parametrize(("made", "resolution", "batch", "checkpointing", "traced"), TRACED_HALF)
def test_a_step_in_float16_is_predicted_within_three_percent(
    made: Callable[..., Run], resolution: int, batch: int, checkpointing: bool, traced: float
) -> None:
    run = made(
        resolution, trainer=RUNNER, quantization="int8", batch_size=batch, gradient_checkpointing=checkpointing
    )
    step = next(phase for phase in predicted(run, ROOMY_T4).phases if phase.name == "training step")
    tensors = (step.total - step.items["CUDA context (assumed)"]) / GIB
    assert tensors == pytest.approx(traced, rel=0.03)


@pytest.mark.parametrize(("quantization", "resolution", "checkpointing", "traced"), TRACED)
def test_a_step_of_the_runner_is_the_traced_one(
    quantization: str | None, resolution: int, checkpointing: bool, traced: float
) -> None:
    run = zimage(resolution, trainer=RUNNER, quantization=quantization, gradient_checkpointing=checkpointing)
    memory = predicted(run, A6000)
    step = next(phase for phase in memory.phases if phase.name == "training step")
    # without a LoRA on the modulation's Linears, and with what decodes nf4
    assert (step.total - step.items["CUDA context (assumed)"]) / GIB == pytest.approx(traced, rel=0.05)


def test_the_runner_keeps_one_thing_at_a_time() -> None:
    """Flux on 16 GB: ai-toolkit holds the whole transformer beside what it quantizes, zdoctor's runner a tensor."""
    run = flux(512, quantization="nf4", text_encoder_quantization="qfloat8", samples=(SAMPLE,))
    theirs, ours = (predicted(replace(run, trainer=trainer), T4) for trainer in ("ai-toolkit", RUNNER))
    assert theirs.peak.total > T4.memory_free > ours.peak.total + ours.margin
    early = [phase for phase in ours.phases if phase.name.startswith("encoding")]
    assert len(early) == 2 and not any("transformer" in phase.items for phase in early)
    late = [phase for phase in ours.phases if phase not in early]
    assert late and not any("text encoder" in phase.items for phase in late)
    # measured: 1.001 times the quantized weights and the largest tensor (benchmarks/load.py)
    assert ours.host_peak == pytest.approx(0.6 * GIB + 2 * 56.6e6, rel=0.01)


def test_loading_takes_what_was_measured() -> None:
    """924 MiB anonymous above the imports for 0.930 billion parameters in int8 (benchmarks/load.py)."""
    config = {"dim": 2304, "n_heads": 18, "n_kv_heads": 18, "n_layers": 12, "n_refiner_layers": 1}
    needed = needed_tensors("ZImageTransformer2DModel", config)
    part = Component("transformer", "/m/transformer", "ZImageTransformer2DModel", config, (), needed=needed)
    run = zimage(trainer=RUNNER, quantization="int8", device="cpu")
    memory = predict(run, ModelFolder("/m", "diffusers", "/m", {"transformer": part}), (), SYSTEM, ())
    assert isinstance(memory, Memory)
    (loading,) = [phase for phase in memory.phases if phase.name == "loading the transformer"]
    assert (loading.total - loading.items["Python and its libraries"]) / 2**20 == pytest.approx(924, rel=0.02)


@pytest.mark.parametrize("kind", ["int8", "float8", "nf4", "float16"])
@pytest.mark.parametrize("adapter", [False, True])
def test_what_quantizing_takes_is_counted(kind: Quantization, adapter: bool) -> None:
    """Of the real code, on tensors without data."""
    rows = PIECE // 4096
    with torch.device("meta"):
        stored = torch.empty(rows, 4096, dtype=torch.bfloat16)
        with Alive() as alive:
            piece = stored.clone().float()
            piece = piece + torch.empty(rows, 4096) if adapter else piece
            quantize_rows(piece, kind)
    assert materialize.PIECE["cuda"] == PIECE
    assert 0.74 * quantizing(PIECE, kind) <= alive.peak <= 1.003 * quantizing(PIECE, kind)
    assert alive.peak > 0.99 * quantizing(PIECE, kind) or (kind != "nf4" and not adapter)


# GiB on a card without numbers, on which the full-size models went through the runner (benchmarks/phases.py).
HELD = [
    (zimage, None, {"encoding the captions": 7.61, "loading the transformer": 11.62, "decoding previews": 14.35}),
    (flux, "int8", {"encoding the pictures": 2.82, "loading the transformer": 11.56, "drawing previews": 12.67}),
    (chroma, "nf4", {"loading the transformer": 5.08, "training step": 7.81, "drawing previews": 6.04}),
    (qwen_image, "int8", {"encoding the captions": 7.38, "encoding the pictures": 4.25, "decoding previews": 28.12}),
]


@pytest.mark.parametrize(("made", "kind", "held"), HELD)
def test_each_phase_is_what_a_card_without_numbers_held(
    made: Callable[..., Run], kind: str | None, held: dict[str, float]
) -> None:
    run = made(1024, trainer=RUNNER, quantization=kind, text_encoder_quantization=kind, samples=(SAMPLE,))
    phases = {phase.name: phase for phase in predicted(run, replace(A6000, memory_free=100 * GIB)).phases}
    for name, most in held.items():
        said = phases[name].total - phases[name].items["CUDA context (assumed)"]
        assert said / GIB == pytest.approx(most, rel=0.05), name


def test_what_does_not_fit_is_encoded_in_host_memory() -> None:
    small = replace(T4, memory_free=8 * GIB)
    run = flux(512, trainer=RUNNER, quantization="nf4", text_encoder_quantization=None)
    memory = predicted(run, small)
    assert "encoding the captions" not in [phase.name for phase in memory.phases]
    # T5 and CLIP: 4.63 billion weights of Linears in float16, the rest in float32
    assert memory.host_peak / GIB == pytest.approx(0.6 + 9.6, rel=0.02)
    assert predicted(run, ROOMY_T4).host_peak < GIB


@pytest.mark.parametrize(("precision", "parts"), [("float8", 0.55), ("nf4", 0.35), ("none", 1.0)])
def test_a_text_encoder_is_quantized_but_for_its_embeddings(precision: str, parts: float) -> None:
    run = zimage(trainer=RUNNER, text_encoder_quantization=None if precision == "none" else precision)
    (encoding,) = [phase for phase in predicted(run, A6000).phases if phase.name == "encoding the captions"]
    assert encoding.items["text encoder"] / (2 * 4.022e9) == pytest.approx(parts, abs=0.02)


def test_blocks_that_wait_in_host_memory_are_made_there() -> None:
    on = {"model/layer_offloading": Value(True, Where("c"), 0, 4)}
    plain = zimage(trainer=RUNNER, quantization="int8")
    away, here = (predicted(run, T4) for run in (changed(plain, settings={**plain.settings, **on}), plain))
    assert away.host_peak - here.host_peak == pytest.approx(6.16e9, rel=0.03)
    steps = [next(p for p in memory.phases if p.name == "training step").total for memory in (away, here)]
    assert steps[0] < steps[1] - 5 * GIB


def test_an_adapter_waits_in_host_memory_until_it_is_merged() -> None:
    for gpus in ((A6000,), ()):
        plain = zimage(512, trainer=RUNNER, quantization="int8", adapter=None)
        without, with_it = (predicted(run, *gpus) for run in (plain, changed(plain, adapter="a")))
        more = {b.name: b.total - a.total for a, b in zip(without.phases, with_it.phases, strict=True)}
        early = [more[name] for name in more if name.startswith(("encoding", "loading"))]
        assert len(early) == 3 and more["training step"] == 0
        # rank 16 on 30 layers of eight Linears, in float32
        waits = pytest.approx(4 * 16 * 30 * (4 * 2 * 3840 + 3 * (3840 + 10240) + 256 + 15360), rel=0.01)
        if gpus:
            assert early == [0, 0, 0] and with_it.host_peak - without.host_peak == waits
        else:
            assert early == [waits] * 3


def test_two_processes_are_there_while_captions_are_encoded_on_a_processor() -> None:
    """5.4 to 5.5 GiB resident in both, for the full-size text encoder in int8 (benchmarks/gpu.py --cpu's model)."""
    memory = predicted(zimage(256, trainer=RUNNER, quantization="int8", text_encoder_quantization="int8"), *())
    (encoding,) = [phase for phase in memory.phases if phase.name == "encoding the captions"]
    assert encoding.total / GIB == pytest.approx(5.45, rel=0.03)


def test_a_processor_may_have_to_compute_in_float32() -> None:
    """bfloat16 arithmetic is not asked for here: unquantized weights may take twice as much."""
    memory = predicted(zimage(512, trainer=RUNNER, quantization=None), *())
    assert memory.margin > 10 * GIB


@pytest.mark.parametrize(
    ("changes", "mapped", "matrices"),
    [
        ({"quantization": "int8"}, True, True),
        ({"quantization": "int8", "gradient_checkpointing": False}, True, False),
        ({"quantization": "int8", "settings": {"model/compile": ON}}, True, False),
        ({"quantization": None}, False, False),
        ({"quantization": "int8", "device": "mps"}, False, False),
        ({"quantization": "int8", "device": "cuda"}, False, False),
    ],
)
def test_quantized_weights_are_pages_of_a_file_on_a_processor(
    changes: dict[str, Any], mapped: bool, matrices: bool
) -> None:
    run = zimage(512, **{"trainer": RUNNER, "device": "cpu", **changes})
    phases = {phase.name: phase for phase in predicted(run, A6000).phases}
    step = phases["training step"]
    assert step.mapped == (step.items["transformer"] if mapped else 0)
    assert step.items.get("matrices of a block", 0) == (2 * 180_879_360 if matrices else 0)
    assert phases["encoding the pictures"].mapped == 0


def test_mps_holds_the_attention_scores() -> None:
    """PyTorch has no fused attention with a backward pass there: it computes plain products, in float32."""
    for trainer in (RUNNER, "ai-toolkit"):
        phases = {phase.name: phase for phase in predicted(zimage(1024, trainer=trainer, device="mps")).phases}
        assert phases["training step"].items["attention scores"] / GIB == pytest.approx(2.1, rel=0.03)
    run = zimage(1024, trainer=RUNNER, device="cpu")
    assert not any("attention scores" in phase.items for phase in predicted(run).phases)


def test_of_two_places_for_blocks_each_holds_the_largest() -> None:
    """Flux has blocks of two sizes: 19 of 339.7 million numbers, 38 of 141.6."""
    run = flux(512, trainer=RUNNER, quantization="int8", settings={"model/layer_offloading": ON})
    plain = changed(run, settings={})
    with_them, without = (predicted(each, ROOMY_T4).phases[-1].items["transformer"] for each in (plain, run))
    weights = 19 * 339.7e6 + 38 * 141.6e6
    assert with_them - without == pytest.approx(weights - 2 * 339.7e6, rel=0.01)


@pytest.mark.parametrize(
    ("component", "again", "weights", "held"),
    [
        ("text_encoder", True, 0.229, 13.2),
        ("text_encoder", False, 0.229, 33.4),
        ("text_encoder_2", True, 8.87, 318.7),
        ("text_encoder_2", False, 8.87, 3708.8),
    ],
)
def test_text_encoders_that_learn_are_counted(component: str, again: bool, weights: float, held: float) -> None:
    """Traced under fake tensors: GiB of the weights in bfloat16, MiB that a step of rank 16 holds more."""
    made = flux(512, trainer=RUNNER, gradient_checkpointing=again)
    plain = changed(made, rank=16, text_encoder_quantization=None)
    learns = changed(plain, network={"text_rates": {component: 1e-4}})
    before, after = (
        next(phase for phase in predicted(run, A6000).phases if phase.name == "training step").items
        for run in (plain, learns)
    )
    more = {name: size for name, size in after.items() if name not in before}
    assert more["text encoders that learn"] / GIB == pytest.approx(weights, rel=0.01)
    assert held <= more["step of the text encoders"] / 2**20 <= 1.2 * held + 12
    assert all(after[name] == size for name, size in before.items())
