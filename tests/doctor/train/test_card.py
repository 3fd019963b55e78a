"""A run on a device that is not the CPU: nothing of it meets what lies on the CPU, and the numbers are the CPU's."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch.utils.backend_registration
from PIL import Image, ImageChops

from zdoctor.doctor.model.recipe import SamplePrompt

from .patient import go, run_with

SAMPLE: dict[str, Any] = {"prompt": "a red circle", "width": 64, "height": 64, "steps": 2, "guidance": 3.0, "seed": 3}
RUNS: dict[str, dict[str, Any]] = {
    "tiny": {"steps": 1, "batch_size": 1, "quantization": "uint4", "use_ema": True, "disable_sampling": False},
    "flux": {"steps": 1, "batch_size": 1, "architecture": "flux"},
}
FAILURE = "CUDA error: unspecified launch failure\nCompile with"


@pytest.mark.skipif(
    not hasattr(torch.utils.backend_registration, "_setup_privateuseone_for_python_backend"),
    reason="this PyTorch has no devices made in Python",
)
def test_a_run_on_a_card_is_that_on_the_cpu(
    tiny: Path, flux: Path, circles: Path, adapter: Path, tmp_path: Path
) -> None:
    asked: list[dict[str, Any]] = []
    here = []
    for name, changes in RUNS.items():
        model, merged = (tiny, adapter) if name == "tiny" else (flux, None)
        samples = [] if changes.get("disable_sampling", True) else [SAMPLE]
        run = run_with(**changes, samples=tuple(SamplePrompt(**sample) for sample in samples))
        here.append(go(run, model, circles, tmp_path / name / "here", adapter=merged, held_out=1, fresh=True))
        asked.append(
            {
                "run": {**changes, "samples": samples},
                "model": str(model),
                "adapter": None if merged is None else str(merged),
                "images": str(circles),
                "output": str(tmp_path / name / "there"),
            }
        )
    few = {"steps": 3, "batch_size": 1, "save_every": 1, "gradient_checkpointing": False}
    made = asked[0]["output"]
    asked.append({**asked[0], "run": few, "output": str(tmp_path / "gone"), "encoded": made, "fails": (2, FAILURE)})
    few = {"steps": 3, "batch_size": 2, "gradient_accumulation": 3}
    asked.append({**asked[0], "run": few, "output": str(tmp_path / "several"), "encoded": made})
    card = [sys.executable, "-m", "zdoctor.tests.doctor.train.card"]
    done = subprocess.run(card, input=json.dumps(asked), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *runs, gone, several = json.loads(done.stdout.splitlines()[-1])
    waits = several[-1]
    assert [after - before for before, after in pairwise(waits)] == [1, 1]  # for the loss and the norm together
    assert "GPU failed" in gone and f"save is of step 1 ({tmp_path / 'gone/circles_000000001.safetensors'})" in gone
    for result, (losses, evaluations, samples, there, emptied, _) in zip(here, runs, strict=True):
        loading = next(phase for phase in there if phase.startswith("Loading the transformer"))
        assert emptied >= 2 + bool(samples)  # as it starts, after the VAE has encoded, and after it has painted
        before = there["Checking the model files"]  # some of an earlier run
        assert there["Reading the dataset"] == there[loading] == before  # the adapter waits on the CPU
        assert losses == pytest.approx(result.losses, rel=1e-5)
        assert [loss for _, loss in evaluations] == pytest.approx([loss for _, loss in result.evaluations], rel=1e-5)
        for one, other in zip(result.samples, samples, strict=True):
            with Image.open(one) as first, Image.open(other) as second:
                assert max(ImageChops.difference(first, second).tobytes()) <= 1
