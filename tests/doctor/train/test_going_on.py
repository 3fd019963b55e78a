"""Runs that are not finite now and then, that go on with other settings, or whose state is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from zdoctor.doctor.train import TrainError
from zdoctor.doctor.train.dataset.training_items import TrainingItem
from zdoctor.doctor.train.encode.latents import Latents

from .patient import Recorder, go, run_with


def test_one_picture_that_is_not_finite_now_and_then_ends_the_run_too(
    tiny: Path, circles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes once in six steps, so no two bad steps follow each other. What is saved stays finite."""
    whole = Latents.get

    def get(self: Latents, item: TrainingItem) -> torch.Tensor:
        return whole(self, item) * (float("nan") if item.picture.file.name == "4.png" else 1.0)

    monkeypatch.setattr(Latents, "get", get)
    recorder = Recorder()
    with pytest.raises(TrainError, match=r"steps \d+, \d+, \d+ \(pictures: 4\.png\)"):
        go(run_with(steps=100, batch_size=1, save_every=2), tiny, circles, tmp_path, progress=recorder)
    assert len([note for note in recorder.notes if "4.png" in note]) == 2
    assert 12 <= len(recorder.steps) < 18
    assert "Ended by an error at step" in (tmp_path / "report.html").read_text()
    saves = [load_file(file) for file in tmp_path.glob("*.safetensors")]
    assert saves and all(tensor.isfinite().all() for save in saves for tensor in save.values())


def test_steps_that_were_not_finite_count_after_a_stop_too(
    tiny: Path, circles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a run that is stopped often enough would go on for ever."""
    whole = Latents.get

    def get(self: Latents, item: TrainingItem) -> torch.Tensor:
        return whole(self, item) * (float("nan") if item.picture.file.name == "4.png" else 1.0)

    monkeypatch.setattr(Latents, "get", get)
    for steps in (6, 12):
        assert go(run_with(steps=steps, batch_size=1), tiny, circles, tmp_path).steps == steps
    with pytest.raises(TrainError, match=r"at the steps [1-6], ([7-9]|1[0-2]), 1[3-8] \(pictures: 4\.png\)"):
        go(run_with(steps=100, batch_size=1), tiny, circles, tmp_path)


def test_a_learning_rate_that_is_far_too_large_is_named(tiny: Path, circles: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainError, match=r"has diverged \(.*holds \d.*lower the learning rate 1e\+30"):
        go(run_with(steps=9, learning_rate=1e30, max_grad_norm=0.0), tiny, circles, tmp_path)


def test_what_the_config_says_of_the_optimizer_counts_after_a_stop(tiny: Path, circles: Path, tmp_path: Path) -> None:
    go(run_with(steps=2), tiny, circles, tmp_path)
    go(run_with(steps=3, optimizer_settings={"weight_decay": 0.5, "betas": [0.8, 0.9]}), tiny, circles, tmp_path)
    (group,) = torch.load(tmp_path / ".circles.state.pt")["optimizer"]["param_groups"]
    assert (group["weight_decay"], group["betas"]) == (0.5, (0.8, 0.9))


def test_another_optimizer_goes_on_with_the_lora(tiny: Path, circles: Path, tmp_path: Path) -> None:
    before = load_file(go(run_with(steps=2), tiny, circles, tmp_path).lora)
    recorder = Recorder()
    result = go(
        run_with(steps=3, optimizer="adafactor", learning_rate=1e-12), tiny, circles, tmp_path, progress=recorder
    )
    assert any("of the optimizer AdamW, and this run has Adafactor" in note for note in recorder.notes)
    after = load_file(result.lora)
    assert all(torch.allclose(before[key], after[key], atol=1e-6) for key in before)


def test_a_state_that_is_cut_off_says_how_to_keep_what_was_learnt(tiny: Path, circles: Path, tmp_path: Path) -> None:
    lora = go(run_with(steps=2), tiny, circles, tmp_path).lora
    state = tmp_path / ".circles.state.pt"
    state.write_bytes(state.read_bytes()[:5000])
    with pytest.raises(TrainError, match=f"cut off.*Move it away.*pretrained_lora_path: {lora}"):
        go(run_with(), tiny, circles, tmp_path)
    Path(lora).write_bytes(Path(lora).read_bytes()[:900])
    with pytest.raises(TrainError, match=f"{lora} is no LoRA that can be opened: it is cut off"):
        go(run_with(), tiny, circles, tmp_path)
