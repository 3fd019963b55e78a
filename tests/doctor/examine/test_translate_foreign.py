"""The runner's words for what other trainers' configs ask for mean nothing in a config of ai-toolkit."""

from __future__ import annotations

import json
from typing import Any

from zdoctor.doctor.examine.translate import for_runner
from zdoctor.doctor.model import Run
from zdoctor.doctor.schema.tables import shipped
from zdoctor.doctor.train import refuse
from zdoctor.doctor.train.network.lora import network_dropout
from zdoctor.doctor.train.settings.explain import explain
from zdoctor.doctor.trainers.read import read_config


def test_in_a_config_of_ai_toolkit_they_say_nothing() -> None:
    nonsense: dict[str, Any] = {"linear": 4, "linear_alpha": 2, "scale": "x", "rank_dropout": "x", "left_out": "["}
    made = ai_toolkit(network=nonsense, train={"epochs": "2", "drawn": 3}, dataset={"bucket_sizes": []})
    table = shipped("ai-toolkit")
    assert table is not None
    run = for_runner(made, table)
    assert refuse(run) == []
    assert not any(network_dropout(run.recipe.network)) and run.recipe.epochs == 0 and run.recipe.network.scale == 1.0
    assert any("alpha 2 is ignored" in note for note in explain(run))
    assert {"network/scale", "datasets/0/bucket_sizes"} <= run.settings.keys()  # for CFG002, which names them


def ai_toolkit(*, network: dict[str, Any], train: dict[str, Any], dataset: dict[str, Any]) -> Run:
    process = {
        "type": "diffusion_trainer",
        "training_folder": "out",
        "network": {"type": "lora", **network},
        "train": {"dtype": "bf16", "steps": 10, **train},
        "datasets": [{"folder_path": "images", "resolution": [256], **dataset}],
        "model": {"name_or_path": "m", "arch": "zimage"},
    }
    tree = {"job": "extension", "config": {"name": "t", "process": [process]}}
    return read_config("config.json", json.dumps(tree).encode(), {}).runs[0]
