"""The words of one trainer in the config of another lead to that one's own."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from zdoctor.doctor.examine.examination import examine_config
from zdoctor.doctor.model import Report
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.rules import all_rules

RULES = [rule for rule in all_rules() if rule.id == "CFG002"]
# what each calls it: ai-toolkit with its section, SimpleTuner, sd-scripts, musubi-tuner
SETTINGS = [
    ("train/lr", "learning_rate", "learning_rate", "learning_rate"),
    ("train/steps", "max_train_steps", "max_train_steps", "max_train_steps"),
    ("network/linear", "lora_rank", "network_dim", "network_dim"),
    ("network/linear_alpha", "lora_alpha", "network_alpha", "network_alpha"),
    ("train/dtype", "mixed_precision", "mixed_precision", "mixed_precision"),
    ("train/optimizer", "optimizer", "optimizer_type", "optimizer_type"),
    ("training_folder", "output_dir", "output_dir", "output_dir"),
    ("model/name_or_path", "pretrained_model_name_or_path", "pretrained_model_name_or_path", "dit"),
    ("save/save_every", "checkpoint_step_interval", "save_every_n_steps", "save_every_n_steps"),
    ("sample/sample_every", "validation_step_interval", "sample_every_n_steps", "sample_every_n_steps"),
]


def reported(trainer: int, name: str, section: str) -> Report:
    if trainer == 0:
        process: dict[str, Any] = {
            "type": "sd_trainer",
            **{at: {} for at in ("train", "network", "model", "save", "sample") if at != section},
            "datasets": [{"folder_path": "/data/cat"}],
        }
        process |= {section: {name: 1}} if section else {name: 1}
        text = yaml.safe_dump({"job": "extension", "config": {"name": "x", "process": [process]}})
    elif trainer == 1:
        text = json.dumps({"model_family": "flux", "model_type": "lora", "data_backend_config": "d.json", name: 1})
    else:
        module = ("networks.lora_flux", "networks.lora_zimage")[trainer - 2]
        text = f'network_module = "{module}"\nsdpa = true\ngradient_checkpointing = true\n{name} = 1\n'
    path = ("config.yaml", "config.json", "config.toml", "config.toml")[trainer]
    named = ("ai-toolkit", "SimpleTuner", "sd-scripts", "musubi-tuner")[trainer]
    return examine_config(path, LiveWorld(), RULES, text.encode(), trainer=named).report


@pytest.mark.parametrize("trainer", range(4))
@pytest.mark.parametrize("setting", SETTINGS)
def test_the_word_of_another_trainer(setting: tuple[str, ...], trainer: int) -> None:
    section, _, own = setting[trainer].rpartition("/")
    for other in {one.rpartition("/")[2] for one in setting} - {own}:
        (finding,) = reported(trainer, other, section).findings
        assert finding.evidence["nearest"] == own, finding.text()
        assert finding.evidence["new"] == own


def test_where_the_own_word_is_written_there_is_nothing_to_rename() -> None:
    text = 'network_module = "networks.lora_flux"\nsdpa = true\nnetwork_dim = 4\nlora_rank = 4\n'
    (finding,) = examine_config("c.toml", LiveWorld(), RULES, text.encode()).report.findings
    assert finding.evidence["nearest"] is None and "new" not in finding.evidence


def test_an_ai_toolkit_rate_at_the_wrong_place() -> None:
    (finding,) = reported(0, "learning_rate", "network").findings
    assert finding.evidence["nearest"] == "lr" and "belongs in train" in finding.text()
