"""TRN007, TRN008, TRN009 and TRN010: saves of an earlier run, made by safetensors and read from disk."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from zdoctor.checks.ai_toolkit import resume
from zdoctor.doctor.model import Config, Finding, Quarantine, Run, SetValue
from zdoctor.doctor.model.remains import EarlierSave, hides
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.probe.start import probe_earlier
from zdoctor.doctor.trainers.read import read_config
from zdoctor.fixes.paths import set_the_save_aside
from zdoctor.fixes.values import take_the_rank_of_the_save

LINEAR = "diffusion_model.layers.0.attention.to_q"


def save(folder: Path, name: str, rank: int = 4, step: int | None = None) -> Path:
    """A LoRA as ai-toolkit saves it."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {f"{LINEAR}.lora_A.weight": torch.ones(rank, 8), f"{LINEAR}.lora_B.weight": torch.ones(8, rank)}
    metadata = {"format": "pt"} if step is None else {"training_info": json.dumps({"step": step, "epoch": 1})}
    save_file(tensors, folder / name, metadata=metadata)
    return folder / name


def config(folder: Path, name: str = "cat", **train: Any) -> tuple[Config, Run]:
    process = {
        "type": "diffusion_trainer",
        "training_folder": str(folder),
        "network": {"type": "lora", "linear": 4},
        "train": {"steps": 100, **train},
        "datasets": [{"folder_path": "x"}],
        "model": {"name_or_path": "m", "arch": "zimage"},
    }
    text = json.dumps({"job": "extension", "config": {"name": name, "process": [process]}})
    reading = read_config("/c/config.json", text.encode(), {})
    return reading.config, reading.runs[0]


def findings(run: Run) -> dict[str, Finding]:
    earlier = probe_earlier(LiveWorld(), run)
    assert earlier is None or isinstance(earlier, EarlierSave)
    rules = {
        "TRN007": resume.resumed_with_another_rank,
        "TRN008": resume.no_step_left,
        "TRN009": resume.saves_not_found_again,
        "TRN010": resume.earlier_save_damaged,
    }
    return {name: finding for name, rule in rules.items() for finding in rule(run, earlier)}


def test_ranks_that_were_filled_up_with_zeros_never_learn() -> None:
    """What the rule says of a LoRA that was enlarged, by torch itself."""
    down, up = torch.zeros(4, 8), torch.zeros(8, 4)
    down[:2], up[:, :2] = torch.randn(2, 8), torch.randn(8, 2)
    down.requires_grad_()
    up.requires_grad_()
    optimizer = torch.optim.AdamW([down, up], lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        torch.autograd.backward((torch.randn(3, 8) @ down.T @ up.T - torch.randn(3, 8)).square().mean())
        optimizer.step()
    assert down[:2].abs().min() > 0 and not down[2:].any() and not up[:, 2:].any()


@pytest.mark.parametrize(("rank", "says"), [(4, ""), (2, "never learn"), (8, "are cut off")])
def test_another_rank(rank: int, says: str, tmp_path: Path) -> None:
    file = save(tmp_path / "cat", "cat_000000050.safetensors", rank, step=50)
    _, run = config(tmp_path)
    found = findings(run)
    assert set(found) == ({"TRN007"} if says else set())
    for finding in found.values():
        assert str(file) in finding.text() and says in finding.consequence()
        (fix,) = take_the_rank_of_the_save(finding)
        assert fix.steps == (SetValue("/c/config.json", "/config/process/0/network/linear", rank),)
        assert fix.training_effect == "changes-result"


@pytest.mark.parametrize(
    ("name", "step", "train", "left"),
    [
        ("cat.safetensors", 100, {}, False),
        ("cat.safetensors", 99, {}, True),
        ("cat.safetensors", None, {}, True),
        ("cat_000000100.safetensors", None, {}, False),
        ("cat.safetensors", 100, {"start_step": 0}, True),
        ("cat.safetensors", 100, {"steps": 200}, True),
        ("cat.safetensors", 100, {"merge_network_on_save": True}, True),
        ("dog.safetensors", 100, {}, True),
    ],
)
def test_a_run_with_all_its_steps(
    name: str, step: int | None, train: dict[str, Any], left: bool, tmp_path: Path
) -> None:
    save(tmp_path / "cat", name, step=step)
    assert set(findings(config(tmp_path, **train)[1])) == (set() if left else {"TRN008"})


def test_the_newest_save_counts(tmp_path: Path) -> None:
    save(tmp_path / "cat", "cat_000000100.safetensors", 8, step=100)
    later = save(tmp_path / "cat", "cat_000000050.safetensors", step=50)
    os.utime(later)  # as a copy would be
    earlier = probe_earlier(LiveWorld(), config(tmp_path)[1])
    assert isinstance(earlier, EarlierSave) and earlier.step == 50


def test_no_folder_no_save_no_finding(tmp_path: Path) -> None:
    assert probe_earlier(LiveWorld(), config(tmp_path)[1]) is None
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "cat.safetensors").mkdir()
    (tmp_path / "cat" / "config.yaml").write_text("x")
    assert probe_earlier(LiveWorld(), config(tmp_path)[1]) is None


@pytest.mark.parametrize(
    ("path", "name", "hidden"),
    [
        ("/data/faces/cat/cat.safetensors", "cat", ""),
        ("/data/my_cn_faces/cat/cat.safetensors", "cat", "_cn"),
        ("/data/my_cn_faces/a_cn/a_cn.safetensors", "a_cn", ""),
        ("/data/cat_LoRA_out/cat/cat.safetensors", "cat", "_LoRA"),
        ("/data/out/cat[1]/cat[1].safetensors", "cat[1]", "[1]"),
        ("/data/out/cat[/cat.safetensors", "cat", ""),
    ],
)
def test_paths_that_the_trainer_passes_over(path: str, name: str, hidden: str) -> None:
    assert hides(path, name) == hidden


def test_brackets_are_a_pattern_for_pythons_glob(tmp_path: Path) -> None:
    from glob import glob

    save(tmp_path / "cat[1]", "cat[1].safetensors")
    assert not glob(str(tmp_path / "cat[1]" / "cat[1]*.safetensors"))
    assert set(findings(config(tmp_path, "cat[1]")[1])) == {"TRN009"}


def test_a_folder_that_hides_saves_is_a_note_before_there_are_any(tmp_path: Path) -> None:
    run = config(tmp_path / "my_cn_faces")[1]
    assert findings(run)["TRN009"].severity == "note"
    save(tmp_path / "my_cn_faces" / "cat", "cat.safetensors", 8, step=100)
    (found,) = findings(run).values()
    assert found.severity is None and "overwrites them" in found.consequence()
    assert not findings(config(tmp_path / "faces")[1])


@pytest.mark.parametrize("content", [b"", b"\x10\0\0\0\0\0\0\0{", None])
def test_a_save_that_was_cut_off(content: bytes | None, tmp_path: Path) -> None:
    file = save(tmp_path / "cat", "cat_000000050.safetensors")
    file.write_bytes(file.read_bytes()[:-40] if content is None else content)
    with pytest.raises(SafetensorError):
        load_file(file)
    (found,) = findings(config(tmp_path)[1]).values()
    assert found.rule == "" and str(file) in found.text()
    (fix,) = set_the_save_aside(found)
    assert fix.steps == (Quarantine(str(file)),)
    file.unlink()
    assert not findings(config(tmp_path)[1])
