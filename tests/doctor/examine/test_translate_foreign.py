"""The runner's words for what other trainers' configs ask for mean nothing in a config of ai-toolkit."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from zdoctor.checks.config.unknown import _OWN_KEYS
from zdoctor.doctor.examine.translate import FOREIGN, for_runner
from zdoctor.doctor.model import Run, Unknown
from zdoctor.doctor.schema.tables import shipped
from zdoctor.doctor.train import refuse
from zdoctor.doctor.train.network.lora import network_dropout
from zdoctor.doctor.train.settings.explain import explain
from zdoctor.doctor.trainers.read import read_config

from ..trainers.kohya.runs import run_of, trained

EPOCHS = {"max_train_epochs": 3, "save_every_n_epochs": 1, "sample_every_n_epochs": 1, "network_weights": "a.st"}


@pytest.mark.parametrize("script", ["flux_train_network", "zimage_train_network"])
def test_whatever_a_config_is_put_into_is_a_word_of_ai_toolkit_or_listed(script: str) -> None:
    schema = shipped("ai-toolkit")
    assert schema is not None
    read = {f"{section}/{name}" for section, names in schema.sections.items() for name in names}
    written = run_of(script, EPOCHS)
    inner = r"(network|train|model|save|sample|logging|datasets)/"
    keys = (re.sub(r"/subsets/\d+/", "/", key) for key in trained(written).settings if re.match(inner, key))
    made = {re.sub(r"/\d+/", "/*/", key) for key in keys}
    assert made >= {"train/drawn", "datasets/*/bucket_sizes", "train/epochs"}
    plain = {key for key in made - read if not re.match(r"train/drawn/|datasets/\*/bucket_sizes/", key)}
    assert plain <= FOREIGN | {*_OWN_KEYS} | set(written.settings)


def test_in_a_config_of_ai_toolkit_they_say_nothing() -> None:
    nonsense: dict[str, Any] = {"linear": 4, "linear_alpha": 2, "scale": "x", "rank_dropout": "x", "left_out": "["}
    made = ai_toolkit(network=nonsense, train={"epochs": "2", "drawn": 3}, dataset={"bucket_sizes": []})
    run = for_runner(made, Unknown("not asked"))
    assert refuse(run) == []
    assert (
        not any(network_dropout(run)) and run.setting("train/epochs") is None and run.setting("network/scale") is None
    )
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
