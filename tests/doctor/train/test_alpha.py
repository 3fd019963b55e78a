"""Alpha where the config's own trainer honours it: peft's numbers, and a file that needs no alpha."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from torch import nn

from zdoctor.doctor.train import TrainError
from zdoctor.doctor.train.explain import explain
from zdoctor.doctor.train.lora import LoraLinear, at_scale_one

from .patient import go, run_with, written

QUARTER = written(network__scale=0.25)


def test_a_linear_with_alpha_is_pefts() -> None:
    torch.manual_seed(0)
    x, base = torch.randn(3, 12), nn.Linear(12, 8)
    ours = LoraLinear(base, (8, 12), 4, 0.0, torch.Generator().manual_seed(0), scale=0.25)
    nn.init.normal_(ours.lora_B)
    theirs = get_peft_model(nn.Sequential(base), LoraConfig(r=4, lora_alpha=1, target_modules=["0"]))
    state = {"lora_A.default.weight": ours.lora_A, "lora_B.default.weight": ours.lora_B}
    theirs.load_state_dict({f"base_model.model.0.{key}": value for key, value in state.items()}, strict=False)
    torch.testing.assert_close(ours(x), theirs(x))
    folded = at_scale_one({"x.lora_A.weight": ours.lora_A, "x.lora_B.weight": ours.lora_B}, 0.25)
    torch.testing.assert_close(ours(x), base(x) + x @ folded["x.lora_A.weight"].T @ folded["x.lora_B.weight"].T)


def test_the_file_holds_it_and_a_state_of_another_alpha_is_refused(tiny: Path, circles: Path, tmp_path: Path) -> None:
    run = run_with(alpha=2, steps=2, settings=QUARTER)
    assert not any("alpha" in note for note in explain(run))
    saved = load_file(go(run, tiny, circles, tmp_path).lora)
    kept = torch.load(tmp_path / ".circles.state.pt", weights_only=True)["lora"]
    for key, value in saved.items():
        torch.testing.assert_close(value, kept[key] * (0.25 if key.endswith("lora_B.weight") else 1.0))
    with pytest.raises(TrainError, match="rank 8 and alpha 2; this run has rank 8"):
        go(run_with(steps=3), tiny, circles, tmp_path)
