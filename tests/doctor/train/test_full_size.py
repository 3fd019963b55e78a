"""Models of full size go through the runner on a card without numbers; what each phase holds is as predicted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from zdoctor.doctor.memory import GIB
from zdoctor.tests.doctor.memory.runs import A6000, predicted
from zdoctor.tests.doctor.train.card import answers_of, compiled
from zdoctor.tests.doctor.train.full_size import build, picture, run_on

KINDS: dict[str, dict[str, Any]] = {
    kind: {"quantization": kind, "text_encoder_quantization": kind} for kind in ("int8", "nf4")
}


@pytest.mark.thorough
@pytest.mark.skipif(torch.version.cuda is not None, reason="the card without numbers needs a PyTorch without CUDA")
@pytest.mark.parametrize("architecture", ["zimage", "sdxl"])
def test_each_phase_holds_what_is_predicted(
    architecture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZDOCTOR_CACHE", "/proc/none")  # where nothing can be kept
    library, images = compiled(tmp_path), picture(tmp_path / "images")
    model = build(tmp_path / "model", architecture)
    runs = [run_on(model, architecture, **changes) for changes in KINDS.values()]
    asked = [(run, model, images, tmp_path / kind) for kind, run in zip(KINDS, runs, strict=True)]
    for run, held in zip(runs, answers_of("full_size", library, asked), strict=True):
        memory = predicted(run, A6000)
        for phase in memory.phases:
            tensors = phase.total - phase.items["CUDA context (assumed)"]
            assert tensors / GIB == pytest.approx(held["most"].pop(phase.name) / GIB, rel=0.05), phase.name
        assert set(held["most"]) == {"saving"}
        assert held["waits"][-1] == {"trainer.py:advance": 1}
