"""A run on a device that is not the CPU: nothing of it meets what lies on the CPU, and the numbers are the CPU's."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch.utils.backend_registration
from PIL import Image, ImageChops

from zdoctor.doctor.model.recipe import SamplePrompt

from .patient import DATASET, go, run_with

SAMPLE: dict[str, Any] = {"prompt": "a red circle", "width": 64, "height": 64, "steps": 2, "guidance": 3.0, "seed": 3}
ONE = {"steps": 1, "batch_size": 1}
TEXT = {"rank": 4, "alpha": 4.0, "text_rates": {"text_encoder": 1e-2, "text_encoder_2": 1e-3}}
# By the fixture of the model: each family, each format, float16, control images, text encoders that learn.
RUNS: dict[str, dict[str, Any]] = {
    "tiny": {**ONE, "quantization": "uint4", "use_ema": True, "disable_sampling": False},
    "flux": {**ONE, "architecture": "flux", "network": TEXT, "text_encoder_quantization": "int8"},
    "flux2": {**ONE, "architecture": "flux2_klein_4b in diffusers", "quantization": "float8", "dtype": "fp16"},
    "chroma": {**ONE, "architecture": "chroma in diffusers", "quantization": "int8"},
    "qwen_image": {**ONE, "architecture": "qwen_image", "quantization": None, "gradient_checkpointing": False},
}
EDITS = ("flux2",)
FAILURE = "CUDA error: unspecified launch failure\nCompile with"


@pytest.mark.skipif(
    not hasattr(torch.utils.backend_registration, "_setup_privateuseone_for_python_backend"),
    reason="this PyTorch has no devices made in Python",
)
def test_a_run_on_a_card_is_that_on_the_cpu(
    request: pytest.FixtureRequest, circles: Path, adapter: Path, tmp_path: Path
) -> None:
    asked: list[dict[str, Any]] = []
    here = []
    for name, changes in RUNS.items():
        model, merged = request.getfixturevalue(name), adapter if name == "tiny" else None
        samples = [] if changes.get("disable_sampling", True) else [SAMPLE]
        control = str(circles) if name in EDITS else ""
        dataset = replace(DATASET, control_folders=(control,)) if control else DATASET
        run = run_with(**changes, samples=tuple(SamplePrompt(**one) for one in samples), datasets=(dataset,))
        here.append(go(run, model, circles, tmp_path / name / "here", adapter=merged, held_out=1, fresh=True))
        asked.append(
            {
                "run": {**changes, "samples": samples},
                "model": str(model),
                "adapter": None if merged is None else str(merged),
                "images": str(circles),
                "control": control,
                "output": str(tmp_path / name / "there"),
            }
        )
    few = {"steps": 3, "batch_size": 1, "save_every": 1, "gradient_checkpointing": False}
    made = asked[0]["output"]
    asked.append({**asked[0], "run": few, "output": str(tmp_path / "gone"), "encoded": made, "fails": (2, FAILURE)})
    few = {"batch_size": 2, "gradient_accumulation": 3}
    asked.append({**asked[0], "run": {**few, "steps": 3}, "output": str(tmp_path / "several"), "encoded": made})
    learnt = {**few, **RUNS["flux"], "steps": 2, "batch_size": 2}
    asked.append({**asked[1], "run": learnt, "output": str(tmp_path / "text"), "encoded": asked[1]["output"]})
    card = [sys.executable, "-m", "zdoctor.tests.doctor.train.card"]
    done = subprocess.run(card, input=json.dumps(asked), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *runs, gone, several, text = json.loads(done.stdout.splitlines()[-1])
    for waits in (several[-1], text[-1]):  # for the loss and the norm together
        assert {after - before for before, after in pairwise(waits)} == {1}
    assert "GPU failed" in gone and f"save is of step 1 ({tmp_path / 'gone/circles_000000001.safetensors'})" in gone
    for result, (losses, evaluations, samples, there, emptied, _) in zip(here, runs, strict=True):
        loading = next(phase for phase in there if phase.startswith("Loading the transformer"))
        assert emptied >= 2 + bool(samples)  # as it starts, after the VAE has encoded, and after it has painted
        before = there["Checking the model files"]  # some of an earlier run
        assert there["Reading the dataset"] == there[loading] == before  # the adapter waits on the CPU
        assert losses == pytest.approx(result.losses, rel=1e-5)
        assert [loss for _, loss in evaluations] == pytest.approx([loss for _, loss in result.evaluations], rel=1e-4)
        for one, other in zip(result.samples, samples, strict=True):
            with Image.open(one) as first, Image.open(other) as second:
                assert max(ImageChops.difference(first, second).tobytes()) <= 1
