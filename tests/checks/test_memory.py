"""MEM001, MEM002 and MEM003 on plain records; a sound setup beside every sick one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from zdoctor.checks.memory import no_gpu_for_full_model, ram_over_budget, vram_over_budget
from zdoctor.doctor.memory import GIB, predict
from zdoctor.doctor.model import Component, Fix, Gpu, Memory, ModelFolder, Run, SetValue, System
from zdoctor.doctor.rules import Unestablished
from zdoctor.fixes.memory import lower_the_peak
from zdoctor.tests.models import probed, run_of

SYSTEM = System("linux", "6", "3.11", "/c", "/h", 4, 30 * GIB, 28 * GIB)


def card(gib: float, capability: tuple[int, int] = (8, 6)) -> Gpu:
    return Gpu(0, "card", int(gib * GIB), int(gib * GIB), capability, "560", "recorded")


def zimage(**changes: Any) -> Run:
    run = run_of("Tongyi-MAI/Z-Image-Turbo")
    datasets = tuple(replace(d, resolutions=(1024,), cache_latents=True) for d in run.datasets)
    return replace(run, **{"rank": 16, "cache_text_embeddings": True, "datasets": datasets, **changes})


def memory(run: Run, gpu: Gpu, system: System = SYSTEM) -> Memory:
    seen = predict(run, probed(run), (), system, (gpu,))
    assert isinstance(seen, Memory)
    return seen


def written(fix: Fix, run: Run) -> dict[str, object]:
    return {s.pointer.removeprefix(run.root + "/"): s.value for s in fix.steps if isinstance(s, SetValue)}


QUANTIZED = {"quantization": "qfloat8", "text_encoder_quantization": "qfloat8"}


@pytest.mark.parametrize(
    ("run", "gpu", "severity"),
    [
        (zimage(), card(48), None),
        (zimage(), card(14.6, (7, 5)), "error"),
        (zimage(**QUANTIZED), card(14.6, (7, 5)), None),
        (zimage(**QUANTIZED), card(24), None),
        (zimage(**QUANTIZED), card(8), "error"),
        (zimage(**QUANTIZED), card(10.5), "warning"),
    ],
)
def test_vram(run: Run, gpu: Gpu, severity: str | None) -> None:
    seen = list(vram_over_budget(run, memory(run, gpu)))
    assert [finding.severity for finding in seen] == ([severity] if severity else [])
    for finding in seen:
        assert "computed" in finding.text() and "recorded" in finding.text()
        assert "assumes captions of up to 256 tokens" in finding.evidence["assumptions"]
        assert finding.consequence()


@pytest.mark.parametrize(
    ("run", "gib", "names", "shared"),
    [
        (zimage(gradient_accumulation=2), (16, 16), "same", True),
        (zimage(gradient_accumulation=2), (16, 12), "same", False),
        (zimage(gradient_accumulation=2), (16, 16), "different", False),
        (zimage(), (16, 16), "same", False),
        (zimage(gradient_accumulation=2, **QUANTIZED), (8, 8), "same", False),
    ],
)
def test_cards_of_a_kind_share_what_one_cannot_hold(
    run: Run, gib: tuple[float, ...], names: str, shared: bool
) -> None:
    """It stays an error, for other trainers; zdoctor train goes on where the finding says that it fits."""
    cards = [replace(card(g), index=i, name="card" if names == "same" else f"card {i}") for i, g in enumerate(gib)]
    seen = predict(run, probed(run), (), SYSTEM, tuple(cards))
    assert isinstance(seen, Memory) and seen.only_fits_sharded(2) <= (seen.sharded(2) < seen.peak.total)
    (finding,) = vram_over_budget(run, seen)
    assert finding.severity == "error"
    assert ("shares the base out over 2 of the cards" in finding.text()) is shared


def test_the_fix_is_the_shortest_ladder_that_fits() -> None:
    run = zimage(cache_text_embeddings=False)
    seen = memory(run, card(16))
    (finding,) = vram_over_budget(run, seen)
    (fix,) = lower_the_peak(finding, run, seen)
    assert {step.pointer.removeprefix(run.root + "/") for step in fix.steps if isinstance(step, SetValue)} >= {
        "model/quantize",
        "model/qtype",
    }
    assert (fix.safety, fix.training_effect) == ("safe", "changes-result")
    run = zimage(gradient_checkpointing=False)
    seen = memory(run, card(24))
    (finding,) = vram_over_budget(run, seen)
    (fix,) = lower_the_peak(finding, run, seen)
    assert [step.pointer.removeprefix(run.root + "/") for step in fix.steps if isinstance(step, SetValue)] == [
        "train/gradient_checkpointing"
    ]
    assert fix.training_effect == "equivalent"
    cured = replace(run, gradient_checkpointing=True)
    assert list(vram_over_budget(cured, memory(cured, card(24)))) == []


def test_a_smaller_batch_comes_with_its_accumulation() -> None:
    run = zimage(**QUANTIZED, batch_size=4)
    seen = memory(run, card(15))
    (finding,) = vram_over_budget(run, seen)
    (fix,) = lower_the_peak(finding, run, seen)
    steps = {
        step.pointer.removeprefix(run.root + "/"): step.value for step in fix.steps if isinstance(step, SetValue)
    }
    assert steps == {"train/batch_size": 1, "train/gradient_accumulation": 4}
    assert fix.training_effect == "equivalent"


def test_when_nothing_suffices_it_is_said() -> None:
    run = zimage()
    seen = memory(run, card(4))
    (finding,) = vram_over_budget(run, seen)
    (fix,) = lower_the_peak(finding, run, seen)
    assert fix.safety == "show" and not fix.steps
    assert "no setting brings the peak below" in fix.title


def test_where_only_the_margin_is_missed_that_is_said() -> None:
    run = zimage()
    (finding,) = vram_over_budget(run, memory(run, card(8)))
    (fix,) = lower_the_peak(finding, run, memory(run, card(8)))
    assert fix.safety == "show" and not fix.steps
    assert "with all settings the peak is 7.9 GiB, perhaps 8.4 GiB (computed), and 8.0 GiB are free" in fix.title


def test_ram() -> None:
    small = replace(SYSTEM, memory_total=12 * GIB, memory_available=10 * GIB)
    run = zimage(quantization="qfloat8", adapter="a.safetensors")
    (finding,) = ram_over_budget(run, memory(run, card(24), small), small)
    assert finding.severity == "error"
    assert list(ram_over_budget(run, memory(run, card(24)), SYSTEM)) == []
    busy = replace(SYSTEM, memory_available=8 * GIB)
    (finding,) = ram_over_budget(run, memory(run, card(24), busy), busy)
    assert finding.severity is None
    # without an adapter nothing but the quantized weights must be held: what lies on disk as it is used gives way
    bare = replace(run, adapter=None)
    assert list(ram_over_budget(bare, memory(bare, card(24), busy), busy)) == []


def test_no_gpu() -> None:
    part = Component("transformer", "/m", "X", {}, (), needed={"w": (40000, 40000)})
    model = ModelFolder("m", "diffusers", "/m", {"transformer": part})
    run = zimage()
    assert len(list(no_gpu_for_full_model(run, (), model, SYSTEM))) == 1
    assert list(no_gpu_for_full_model(run, (card(8),), model, SYSTEM)) == []
    assert list(no_gpu_for_full_model(replace(run, device="cpu"), (), model, SYSTEM)) == []
    assert list(no_gpu_for_full_model(run, (), model, replace(SYSTEM, os="darwin"))) == []
    assert len(list(no_gpu_for_full_model(run, (), probed(run), SYSTEM))) == 1
    with pytest.raises(Unestablished):
        list(no_gpu_for_full_model(run, (), probed(run_of("acme/Z-Tiny")), SYSTEM))
    tiny = replace(model, components={"transformer": replace(part, needed={"w": (40, 40)})})
    assert list(no_gpu_for_full_model(run, (), tiny, SYSTEM)) == []
