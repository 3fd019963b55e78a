"""A run on a device that is not the CPU: nothing of it meets what lies on the CPU, and the numbers are the CPU's."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image, ImageChops

from zdoctor.doctor.model.recipe import SamplePrompt
from zdoctor.doctor.model.run import Run
from zdoctor.tests.doctor.train.card import Asked

from .patient import DATASET, go, run_with

SAMPLE = SamplePrompt("a red circle", 64, 64, 2, 3, 3.0)
TEXT = {"rank": 4, "alpha": 4.0, "text_rates": {"text_encoder": 1e-2, "text_encoder_2": 1e-3}}
OFF = {"gradient_checkpointing": True, "share": 1.0}
FAILURE = "CUDA error: unspecified launch failure\nCompile with"


@dataclass(frozen=True)
class Way:
    """A family by the fixture of its model, and a way to train it; `controls` images for each picture, or masks."""

    fixture: str
    changes: dict[str, Any] = field(default_factory=dict)
    controls: int = 0
    masks: bool = False
    samples: bool = False
    adapter: bool = False
    old: bool = False  # without arithmetic in bfloat16


SDXL = {"architecture": "sdxl", "noise_scheduler": "ddpm"}
# Families, formats and precisions, and what else decides what lies where.
WAYS = {
    "nf4, EMA, samples": Way("tiny", {"quantization": "uint4", "use_ema": True}, samples=True, adapter=True),
    "offloaded": Way("tiny", {"offload": OFF, "use_ema": True}, samples=True),
    "masks": Way("tiny", {"loss": {"background_weight": 0.5}}, masks=True),
    "Flux, text encoders": Way("flux", {"architecture": "flux", "network": TEXT}),
    "Klein": Way("flux2", {"architecture": "flux2_klein_4b in diffusers", "dtype": "fp16"}, controls=2),
    "Chroma": Way("chroma", {"architecture": "chroma in diffusers"}),
    "SDXL": Way("sdxl", {**SDXL, "quantization": None, "loss": {"min_snr_gamma": 5.0}}),
}
# Where diffusers' own classes wait, as each pass begins: a table that Chroma makes anew.
OWN = {"Chroma": {"transformer_chroma.py:forward"}}


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CUDA device for a PyTorch without one."""
    compiler = shutil.which("g++")
    if compiler is None or not sys.platform.startswith("linux") or torch.version.cuda is not None:
        pytest.skip("needs g++ on Linux, and a PyTorch without CUDA")
    file, there = tmp_path_factory.mktemp("card") / "card.so", Path(torch.__file__).parent
    source = Path(__file__).with_name("card.cpp")
    words = [compiler, "-std=c++20", "-shared", "-fPIC", f"-I{there / 'include'}", str(source), "-o", str(file)]
    words += [f"-L{there / 'lib'}", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{there / 'lib'}"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return file


def on_card(library: Path, asked: list[Asked]) -> list[Any]:
    program = (
        f"import ctypes; ctypes.CDLL({str(library)!r}); from zdoctor.tests.doctor.train import card; card.main()"
    )
    done = subprocess.run([sys.executable, "-c", program], input=pickle.dumps(asked), capture_output=True)
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    answers: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return answers


def run_of(way: Way, circles: Path) -> Run:
    dataset = replace(
        DATASET,
        control_folders=(str(circles),) * way.controls,
        mask_folder=str(circles) if way.masks else None,
    )
    samples = (SAMPLE,) if way.samples else ()
    changes = {"steps": 2, "batch_size": 1, **way.changes}
    return run_with(**changes, datasets=(dataset,), samples=samples, disable_sampling=not samples)


@pytest.mark.parametrize("names", [list(WAYS)[:3], list(WAYS)[3:]])
def test_a_run_on_a_card_is_that_on_the_cpu(
    names: list[str], library: Path, request: pytest.FixtureRequest, circles: Path, adapter: Path, tmp_path: Path
) -> None:
    asked, here = [], []
    for name in names:
        way = WAYS[name]
        model: Path = request.getfixturevalue(way.fixture)
        run, held = run_of(way, circles), int(way.samples)
        merged = adapter if way.adapter else None
        plain = replace(run, recipe=replace(run.recipe, precision=replace(run.recipe.precision, dtype="fp32")))
        here.append(go(plain, model, circles, tmp_path / name / "here", adapter=merged, held_out=held, fresh=True))
        on = replace(run, device="cuda")
        place, able = tmp_path / name / "there", (7, 5) if way.old else (8, 0)
        asked.append(Asked(on, model, circles, place, adapter=merged, capability=able, held_out=held))
    for name, result, answer in zip(names, here, on_card(library, asked), strict=True):
        assert isinstance(answer, dict), (name, answer)
        way = WAYS[name]
        assert answer["emptied"] >= 2 + way.samples  # as it starts, after the VAE, and after it has painted
        there = answer["there"]
        loading = next(phase for phase in there if phase.startswith("Loading the transformer"))
        before = there["Checking the model files"]  # some of an earlier run
        assert there["Reading the dataset"] == there[loading] == before  # the adapter waits on the CPU
        waits = answer["waits"][-1]
        assert waits.pop("trainer.py:advance") == 1  # for the losses and the norm together
        assert set(waits) <= OWN.get(name, set()), name
        near = 1e-5 if "dtype" not in way.changes else 0.03
        assert answer["losses"] == pytest.approx(result.losses, rel=near), name
        losses = [loss for _, loss in result.evaluations]
        assert [loss for _, loss in answer["evaluations"]] == pytest.approx(losses, rel=max(near, 1e-4)), name
        for one, other in zip(result.samples, answer["samples"], strict=True):
            with Image.open(one) as first, Image.open(other) as second:
                assert max(ImageChops.difference(first, second).tobytes()) <= 1


def test_a_card_that_fails_leaves_the_last_good_save(
    library: Path, tiny: Path, circles: Path, tmp_path: Path
) -> None:
    changes = {"steps": 3, "save_every": 1, "gradient_checkpointing": False}
    run = replace(run_of(Way("tiny", changes), circles), device="cuda")
    (gone,) = on_card(library, [Asked(run, tiny, circles, tmp_path, fails=(2, FAILURE))])
    assert "GPU failed" in gone and f"save is of step 1 ({tmp_path / 'circles_000000001.safetensors'})" in gone
