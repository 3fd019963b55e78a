"""Alpha where the config's own trainer honours it: peft's numbers, and a file that needs no alpha."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from torch import nn

from zdoctor.doctor.model.recipe import Network
from zdoctor.doctor.train import TrainError
from zdoctor.doctor.train.network.lora import as_saved
from zdoctor.doctor.train.network.lora_linear import Dropout, LoraLinear
from zdoctor.doctor.train.settings.explain import explain
from zdoctor.tests.changes import changed

from ..patient import go, run_with

QUARTER = {"scale": 0.25, "alpha": 2.0}


def test_a_linear_with_alpha_is_pefts() -> None:
    torch.manual_seed(0)
    x, base = torch.randn(3, 12), nn.Linear(12, 8)
    ours = LoraLinear(base, (8, 12), 4, Dropout(), torch.Generator().manual_seed(0), scale=0.25)
    nn.init.normal_(ours.lora_B)
    theirs = get_peft_model(nn.Sequential(base), LoraConfig(r=4, lora_alpha=1, target_modules=["0"]))
    state = {"lora_A.default.weight": ours.lora_A, "lora_B.default.weight": ours.lora_B}
    theirs.load_state_dict({f"base_model.model.0.{key}": value for key, value in state.items()}, strict=False)
    torch.testing.assert_close(ours(x), theirs(x))
    folded = as_saved({"x.lora_A.weight": ours.lora_A, "x.lora_B.weight": ours.lora_B}, Network(scale=0.25))
    torch.testing.assert_close(ours(x), base(x) + x @ folded["x.lora_A.weight"].T @ folded["x.lora_B.weight"].T)


def test_the_file_holds_it_and_a_state_of_another_alpha_is_refused(tiny: Path, circles: Path, tmp_path: Path) -> None:
    run = run_with(steps=2, network=QUARTER)
    assert not any("alpha" in note for note in explain(run))
    saved = load_file(go(run, tiny, circles, tmp_path).lora)
    kept = torch.load(tmp_path / ".circles.state.pt", weights_only=True)["lora"]
    for key, value in saved.items():
        torch.testing.assert_close(value, kept[key] * (0.25 if key.endswith("lora_B.weight") else 1.0))
    with pytest.raises(TrainError, match="rank 8, alpha 2; this run has rank 8"):
        go(run_with(steps=3), tiny, circles, tmp_path)


def test_b_learns_faster_and_linears_are_left_out(tiny: Path, circles: Path, tmp_path: Path) -> None:
    """The first step of Adam is as long as its rate, whatever the gradient; B has four times that of A."""
    begun = go(run_with(steps=1, learning_rate=1e-3), tiny, circles, tmp_path / "plain")
    network = {"lora_plus_ratio": 4.0, "excluded": r"attention\."}
    run = run_with(steps=1, learning_rate=1e-3, network=network)
    plain, faster = load_file(begun.lora), load_file(go(run, tiny, circles, tmp_path / "plus").lora)
    assert faster.keys() == {key for key in plain if ".attention." not in key}
    for key, value in faster.items():
        if key.endswith("lora_B.weight"):
            assert value.abs().max() == pytest.approx(4e-3, rel=1e-2)
            assert plain[key].abs().max() == pytest.approx(1e-3, rel=1e-2)
    again = go(changed(run, steps=2), tiny, circles, tmp_path / "plus")
    assert again.steps == 2
    with pytest.raises(TrainError, match=r"LoRA\+ 4, without"):
        go(run_with(steps=3, learning_rate=1e-3), tiny, circles, tmp_path / "plus")
