"""A small SimpleTuner config, read, and as the runner takes it."""

from __future__ import annotations

import json
from typing import Any

from zdoctor.doctor.errors import UserError
from zdoctor.doctor.examine.translate import for_runner
from zdoctor.doctor.model import Run
from zdoctor.doctor.schema.tables import shipped
from zdoctor.doctor.train.settings.refuse import refuse
from zdoctor.doctor.trainers.read import Found, read_config

CONFIG: dict[str, Any] = {
    "model_family": "z_image",
    "model_flavour": "base",
    "model_type": "lora",
    "output_dir": "output/lantern",
    "data_backend_config": "config/data.json",
    "max_train_steps": 10,
    "num_train_epochs": 0,
    "learning_rate": 1e-4,
    "lr_scheduler": "constant",
}
SET: dict[str, Any] = {
    "id": "a",
    "type": "local",
    "instance_data_dir": "pictures",
    "caption_strategy": "textfile",
}


def run_of(written: dict[str, Any] | None = None, *sets: dict[str, Any], lycoris: object = None) -> Run:
    """As it is read; an option that is `...` is left out."""
    options = {name: value for name, value in {**CONFIG, **(written or {})}.items() if value is not ...}
    files = {"config/data.json": Found("data.json", json.dumps(sets or [SET], indent=1).encode())}
    if lycoris is not None:
        options |= {"lora_type": "lycoris", "lycoris_config": "config/lycoris.json"}
        files["config/lycoris.json"] = Found("lycoris.json", json.dumps(lycoris, indent=1).encode())
    return read_config("config.json", json.dumps(options, indent=1).encode(), {}, beside=files.get).runs[0]


def trained(written: dict[str, Any] | None = None, *sets: dict[str, Any], lycoris: object = None) -> Run:
    """As the runner takes it, which refuses nothing of it."""
    schema = shipped("SimpleTuner")
    assert schema is not None
    made = for_runner(run_of(written, *sets, lycoris=lycoris), schema)
    assert refuse(made) == []
    return made


def said(written: dict[str, Any] | None = None, *sets: dict[str, Any], lycoris: object = None) -> str:
    """Why the runner refuses it, "" where it does not."""
    schema = shipped("SimpleTuner")
    assert schema is not None
    try:
        for_runner(run_of(written, *sets, lycoris=lycoris), schema)
    except UserError as error:
        return str(error)
    return ""


def differences(run: Run) -> tuple[str, ...]:
    """What the runner says that it does in another way."""
    schema = shipped("SimpleTuner")
    assert schema is not None
    return for_runner(run, schema).differences
