"""A healthy config of SimpleTuner, and what the rules say of one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from zdoctor.doctor.examine.engine import cures, examine
from zdoctor.doctor.model import DatasetFolder, Facts, Image, Report, Unknown
from zdoctor.doctor.rules import all_repairs, all_rules
from zdoctor.doctor.schema.tables import shipped
from zdoctor.doctor.trainers.read import Found, read_config

HEALTHY: dict[str, Any] = {
    "model_family": "z_image",
    "model_flavour": "turbo",
    "model_type": "lora",
    "output_dir": "output/lantern",
    "data_backend_config": "config/data.json",
    "max_train_steps": 1000,
    "num_train_epochs": 0,
    "train_batch_size": 1,
    "learning_rate": 1e-4,
    "validation_steps": 50,
    "gradient_checkpointing": True,
    "base_model_precision": "int8-torchao",
}
SET: dict[str, Any] = {
    "id": "lanterns",
    "type": "local",
    "instance_data_dir": "/data/lanterns",
    "caption_strategy": "textfile",
    "resolution": 1024,
    "cache_dir_vae": "cache/vae/{id}",
}
TEXT: dict[str, Any] = {"id": "text", "type": "local", "dataset_type": "text_embeds", "cache_dir": "cache/text"}


def looked_at(
    config: dict[str, Any],
    data: object = (SET, TEXT),
    images: int = 20,
    sizes: Sequence[tuple[int, int]] | None = None,
    path: str = "/st/config/config.json",
    text: str | None = None,
    network: object = None,
) -> Report:
    files = {"config/data.json": Found("/st/config/data.json", json.dumps(data, indent=1).encode())}
    if network is not None:
        files["config/lycoris.json"] = Found("/st/config/lycoris.json", json.dumps(network).encode())
    written = json.dumps({name: value for name, value in config.items() if value is not ...}, indent=1)
    reading = read_config(path, (text or written).encode(), {}, beside=files.get)
    run = reading.runs[0] if reading.runs else Unknown(reading.reason)
    all = enumerate(sizes or [(1024, 1024)] * images)
    pictures = tuple(Image(f"/data/lanterns/{index}.jpg", *size, caption=True) for index, size in all)
    folders = (DatasetFolder("datasets/0", "/data/lanterns", pictures),)
    schema = shipped("SimpleTuner")
    assert schema is not None
    facts = Facts(config=reading.config, run=run, schema=schema, datasets=folders)
    chosen = [rule for rule in all_rules() if rule.id.startswith(("SIM", "CFG")) and rule.suits("SimpleTuner")]
    report = cures(examine(facts, chosen, config=path, trainer="SimpleTuner"), facts, all_repairs())
    assert not report.crashed, report.crashed
    return report


def ids(report: Report) -> list[str]:
    return [finding.rule for finding in report.findings]
