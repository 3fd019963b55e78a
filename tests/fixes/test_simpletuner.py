"""SimpleTuner's config and its file of datasets are repaired in one go, and taken back in one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tomlkit

from zdoctor.doctor.apply import undo
from zdoctor.doctor.commands.fix import fix
from zdoctor.doctor.state import state_folder

CONFIG = """\
# my run
model_family = "z-image"  # from the guide
model_type = "lora"
output_dir = "out"
data_backend_config = "config/data.json"
max_train_steps = 100
gradient_checkpointing = "false"
"""
DATA = '[\n  {"id": "a", "type": "local", "instance_data_dir": "none", "caption_strategy": "textfle"}\n]\n'


def test_both_files_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZDOCTOR_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    config, data = tmp_path / "config" / "config.toml", tmp_path / "config" / "data.json"
    config.parent.mkdir()
    config.write_bytes(CONFIG.replace("\n", "\r\n").encode())
    data.write_text(DATA)
    done = fix("config/config.toml", apply=True, allow="changes-result", selected=["SIM", "CFG"])
    assert {finding.rule for finding in done.before.findings} == {"CFG004", "SIM001", "SIM002", "SIM006"}
    assert done.after is not None
    assert done.after.findings == ()
    text = config.read_bytes().decode()
    assert "\r\n" in text and "\n" not in text.replace("\r\n", "")
    assert tomlkit.parse(text).unwrap() == {
        "model_family": "z_image",
        "model_type": "lora",
        "output_dir": "out",
        "data_backend_config": "config/data.json",
        "max_train_steps": 100,
        "gradient_checkpointing": False,
        "num_train_epochs": 0,
    }
    assert '"z_image"  # from the guide' in text
    assert json.loads(data.read_text())[0]["caption_strategy"] == "textfile"
    undo(None, state=state_folder())
    assert config.read_bytes() == CONFIG.replace("\n", "\r\n").encode()
    assert data.read_text() == DATA
