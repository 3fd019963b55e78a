"""Any optimizer of a package is taken as module.Class: tried before anything is loaded, and saved as it is used."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from zdoctor.doctor.train import TrainError
from zdoctor.doctor.train.settings.refuse import refuse
from zdoctor.doctor.train.step.optimizer import try_optimizer

from ..patient import Recorder, go, run_with
from . import own_optimizers as own
from .test_optimizer import RATE, start, steps, trained

CPU, HERE = torch.device("cpu"), own.__name__
FREE: dict[str, Any] = {"optimizer": f"{HERE}.Free", "optimizer_settings": {"beta": 0.8}, "quantization": None}


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        (f"{HERE}.Fre", {}, r"has no optimizer Fre; it has Closed, Free, Needy, Odd\."),
        (f"{HERE}_.Free", {}, "cannot be imported: No module named"),
        ("json.JSONDecoder", {}, "it has none"),
        (f"{HERE}.Needy", {}, r"does not take its settings \{\}: .*missing 1 required .*'momentum'"),
        (f"{HERE}.Free", {"betas": [0.9]}, "does not take its settings .*'betas'"),
        (f"{HERE}.Closed", {}, "makes no step here: .*closure"),
        (f"{HERE}.Odd", {}, "a run could not go on from"),
    ],
)
def test_what_does_not_work_is_said_before_anything_is_loaded(
    name: str, settings: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(TrainError, match=words):
        try_optimizer(name, settings, 1e-3, CPU)
    run = run_with(optimizer=name, optimizer_settings=settings)
    with pytest.raises(TrainError, match=words):
        go(run, tmp_path / "no-model", tmp_path, tmp_path / "out")


def test_a_package_that_is_not_here_is_refused_by_name() -> None:
    (reason,) = refuse(run_with(optimizer="notthere.AdamW"))
    assert reason.startswith("The optimizer notthere.AdamW needs a package that is not here; install what brings")
    (reason,) = refuse(run_with(optimizer="adamw9"))
    assert "the class of an installed package as module.Class" in reason


def test_what_is_saved_and_painted_are_the_weights_to_be_used(tiny: Path, circles: Path, tmp_path: Path) -> None:
    """And neither saving nor stopping changes a bit of what is learnt."""
    every = run_with(steps=4, save_every=1, **FREE)
    often = go(every, tiny, circles, tmp_path / "often", held_out=1)
    plain = go(run_with(steps=4, **FREE), tiny, circles, tmp_path / "plain", held_out=1)
    assert often.losses == plain.losses and all(map(math.isfinite, often.losses))
    ours, theirs = load_file(often.lora), load_file(plain.lora)
    assert all(torch.equal(value, theirs[key]) for key, value in ours.items())
    state = torch.load(tmp_path / "plain/.circles.state.pt", weights_only=True)
    group = state["optimizer"]["param_groups"][0]
    for (key, value), number in zip(state["lora"].items(), group["params"], strict=True):
        x = value.lerp(state["optimizer"]["state"][number]["z"], 1 - 1 / 0.8)
        torch.testing.assert_close(theirs[key], x)
    go(run_with(steps=2, **FREE), tiny, circles, tmp_path / "stopped", held_out=1)
    went_on = go(run_with(steps=4, **FREE), tiny, circles, tmp_path / "stopped", held_out=1)
    assert went_on.losses == plain.losses
    gone = load_file(went_on.lora)
    assert all(torch.equal(value, theirs[key]) for key, value in gone.items())


@pytest.mark.parametrize(
    ("name", "path", "settings"),
    [
        ("adamwschedulefree", "schedulefree.AdamWScheduleFree", {"warmup_steps": 2}),
        ("came", "came_pytorch.CAME", {"weight_decay": 0.1}),
        ("prodigyplus", "prodigyplus.ProdigyPlusScheduleFree", {}),
        ("torch.optim.NAdam", "torch.optim.NAdam", {"betas": [0.8, 0.9]}),
    ],
)
def test_steps_are_those_of_the_package(name: str, path: str, settings: dict[str, Any]) -> None:
    module = pytest.importorskip(path.rpartition(".")[0])
    theirs = start()
    steps(getattr(module, path.rpartition(".")[2])(theirs, lr=RATE, **settings), theirs, range(6))
    for one, other in zip(trained(name, settings, 6), theirs, strict=True):
        assert torch.equal(one, other.detach())


def test_a_run_is_told_by_its_own_name(tiny: Path, circles: Path, tmp_path: Path) -> None:
    go(run_with(steps=1, **FREE), tiny, circles, tmp_path, progress=Recorder())
    record = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    assert record["settings"]["optimizer"] == f"{HERE}.Free" and record["asked"] == {}
