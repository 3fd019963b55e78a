"""Which types a run computes in, by what is asked for and what the device can do."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from zdoctor.doctor.train.runtime import precision as numerics
from zdoctor.doctor.train.runtime.precision import on_cpu, on_cuda
from zdoctor.doctor.train.settings.names import DTYPES

from ..patient import Recorder, go, run_with

FULL, BRAIN, HALF = torch.float32, torch.bfloat16, torch.float16


@pytest.mark.parametrize(
    ("capability", "wanted", "dtype", "half", "said"),
    [
        ((7, 5), BRAIN, FULL, True, "no bfloat16 arithmetic"),
        ((7, 0), HALF, FULL, True, ""),
        ((6, 0), FULL, FULL, False, ""),
        ((8, 0), BRAIN, BRAIN, False, ""),
        ((12, 0), HALF, FULL, True, ""),
    ],
)
def test_cards(capability: tuple[int, int], wanted: torch.dtype, dtype: torch.dtype, half: bool, said: str) -> None:
    found = on_cuda(wanted, "Tesla T4", capability)
    assert (found.dtype, found.scaled_float16) == (dtype, half)
    assert said in found.note and bool(found.note) == bool(said)
    assert found.text_encoder_dtype == (HALF if half else dtype)


@pytest.mark.parametrize(
    ("wanted", "brain", "half", "dtype", "products"),
    [
        (BRAIN, True, False, BRAIN, False),
        (BRAIN, False, True, FULL, False),
        (HALF, True, False, FULL, False),
        (HALF, True, True, FULL, True),
        (FULL, True, True, FULL, False),
    ],
)
def test_processors(wanted: torch.dtype, brain: bool, half: bool, dtype: torch.dtype, products: bool) -> None:
    found = on_cpu(wanted, brain=brain, half=half)
    assert (found.dtype, found.scaled_float16) == (dtype, products)
    assert bool(found.note) == (wanted != FULL and (found.dtype, found.scaled_float16) == (FULL, False))


@pytest.mark.parametrize(
    ("wanted", "new", "dtype", "half"),
    [
        ("bf16", True, BRAIN, False),
        ("bf16", False, FULL, False),
        ("fp16", False, FULL, True),
        ("fp32", False, FULL, False),
    ],
)
def test_a_mac(wanted: str, new: bool, dtype: torch.dtype, half: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By torch's sources it refuses bfloat16 on MPS before macOS 14."""
    monkeypatch.setattr(torch.backends.mps, "is_macos_or_newer", lambda major, minor: new or major < 14)
    found = numerics.choose_precision(wanted, torch.device("mps"))
    assert (found.dtype, found.scaled_float16, "macOS 14" in found.note) == (
        dtype,
        half,
        wanted == "bf16" and not new,
    )


def test_every_name_is_a_type_of_torch() -> None:
    assert {getattr(torch, name) for name in DTYPES.values()} == {FULL, BRAIN, HALF}


@pytest.mark.parametrize("quantization", ["int8", pytest.param(None, marks=pytest.mark.thorough)])
def test_a_run_in_float16_is_near_to_one_in_float32_and_goes_on_exactly(
    tiny: Path, circles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quantization: str | None
) -> None:
    monkeypatch.setattr(numerics, "has_float16", lambda: True)
    run, recorder = run_with(dtype="fp16", quantization=quantization), Recorder()
    through = go(run, tiny, circles, tmp_path / "a", progress=recorder)
    assert any("float16, float32 between products" in phase for phase in recorder.phases)
    exact = go(run_with(quantization=quantization), tiny, circles, tmp_path / "b")
    assert through.losses != exact.losses
    assert through.losses == pytest.approx(exact.losses, rel=2e-3)
    go(run_with(dtype="fp16", quantization=quantization, steps=2), tiny, circles, tmp_path / "c")
    assert go(run, tiny, circles, tmp_path / "c").losses == through.losses
