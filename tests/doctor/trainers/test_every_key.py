"""Every key of every trainer's schema at a value that is not its default: read, refused, or said to do nothing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import tomlkit

from zdoctor.doctor.configs.words import same
from zdoctor.doctor.errors import UserError
from zdoctor.doctor.examine.translate import for_runner, obeyed
from zdoctor.doctor.model import Run, Schema
from zdoctor.doctor.model.schema import Key
from zdoctor.doctor.schema.tables import shipped
from zdoctor.doctor.schema.takers import takers
from zdoctor.doctor.trainers.read import Found, read_config
from zdoctor.tests.doctor.trainers.kohya.runs import FLUX, GENERAL, KONTEXT, MUSUBI_SET, SET, SUBSET, ZIMAGE

AI_TOOLKIT = {
    "type": "sd_trainer",
    "training_folder": "out",
    "device": "cuda",
    "network": {"type": "lora", "linear": 16, "linear_alpha": 16},
    "save": {"dtype": "bf16"},
    "datasets": [{"folder_path": "/data/cat"}],
    "train": {"noise_scheduler": "flowmatch", "dtype": "bf16", "ema_config": {"use_ema": True}},
    "model": {"name_or_path": "/models/z", "arch": "zimage"},
    "sample": {"samples": [{"prompt": "a cat"}]},
    "logging": {},
}
SIMPLETUNER = {
    "model_type": "lora",
    "model_family": "z_image",
    "pretrained_model_name_or_path": "/models/z",
    "data_backend_config": "multidatabackend.json",
    "max_train_steps": 10,
    "output_dir": "out",
    "optimizer": "adamw_bf16",
    "validation_prompt": "a cat",
}
BACKEND = {"id": "cat", "type": "local", "instance_data_dir": "/data/cat", "caption_strategy": "textfile"}
# The trainer, the script or process, and the tree that the runner trains; files of datasets are below "datasets".
BASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ai-toolkit zimage": ("ai-toolkit", "sd_trainer", AI_TOOLKIT),
    "ai-toolkit flux": (
        "ai-toolkit",
        "sd_trainer",
        {**AI_TOOLKIT, "model": {"name_or_path": "/models/f", "arch": "flux"}},
    ),
    "SimpleTuner zimage": ("SimpleTuner", "lora", {**SIMPLETUNER, "datasets": [BACKEND]}),
    "SimpleTuner flux": (
        "SimpleTuner",
        "lora",
        {**SIMPLETUNER, "model_family": "flux", "datasets": [BACKEND]},
    ),
    "sd-scripts flux": (
        "sd-scripts",
        "flux_train_network",
        {**FLUX, "general": {}, "datasets": [{**SET, "subsets": [SUBSET]}]},
    ),
    "musubi-tuner zimage": (
        "musubi-tuner",
        "zimage_train_network",
        {**ZIMAGE, "general": GENERAL, "datasets": [MUSUBI_SET]},
    ),
    "musubi-tuner kontext": (
        "musubi-tuner",
        "flux_kontext_train_network",
        {**KONTEXT, "general": GENERAL, "datasets": [MUSUBI_SET]},
    ),
}


def table(trainer: str) -> Schema:
    found = shipped(trainer)
    assert found is not None
    return found


def keys_of(schema: Schema, process: str) -> Iterator[tuple[str, Key]]:
    """The keys in all sections that a run of this process has, by their places in the first of each list."""
    for at in schema.sections:
        if ":" in at:
            continue
        place = at.replace("*", "0")
        for name, key in (schema.section(at, process) or {}).items():
            yield f"{place}/{name}".lstrip("/"), key


def other(key: Key, written: Any) -> Any:
    """A value that is neither the default nor the one in `written`."""
    plain = written if written is not None else key.default
    if key.kind == "bool" or isinstance(plain, bool):
        return not plain
    if key.kind in ("int", "float") or isinstance(plain, int | float):
        return (plain or 0) + 7
    if key.kind == "list":
        return ["zdoctor"]
    if key.kind == "dict":
        return {"zdoctor": 7}
    return next((choice for choice in key.choices if not same(choice, plain)), "zdoctor")


def at(tree: Any, key: str) -> Any:
    for part in key.split("/"):
        if isinstance(tree, list):
            tree = tree[int(part)] if int(part) < len(tree) else None
        else:
            tree = tree.get(part) if isinstance(tree, dict) else None
    return tree


def put(tree: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    made: Any = json.loads(json.dumps(tree))
    inner = made
    *parents, name = key.split("/")
    for part, following in pairwise((*parents, name)):
        if isinstance(inner, list):
            inner += [{}] * (int(part) + 1 - len(inner))
            inner = inner[int(part)]
        else:
            empty: Any = [] if following.isdigit() else {}
            inner[part] = inner[part] if isinstance(inner.get(part), list | dict) else empty
            inner = inner[part]
    inner[name] = value
    return dict(made)


def run_of(trainer: str, tree: dict[str, Any]) -> Run | None:
    """The run of a tree as a config with its file of datasets; None where it is refused as it is read."""
    files: dict[str, Any] = {}
    if trainer == "ai-toolkit":
        whole: Any = {"job": "extension", "config": {"name": "cat", "process": [tree]}}
    else:
        whole = {name: value for name, value in tree.items() if name not in ("general", "datasets")}
        sets = (
            tree["datasets"] if trainer == "SimpleTuner" else {name: tree[name] for name in ("general", "datasets")}
        )
        files = {str(tree.get("dataset_config", "multidatabackend.json")): sets}
    of_kohya = trainer in ("sd-scripts", "musubi-tuner")  # which read no JSON
    reading = read_config(
        "c.toml" if of_kohya else "c.json",
        (tomlkit.dumps(whole) if of_kohya else json.dumps(whole)).encode(),
        {},
        trainer=trainer,
        beside=lambda name: Found("d.json", json.dumps(files[name]).encode()) if name in files else None,
    )
    return reading.runs[0] if reading.runs else None


def outcome(run: Run | None, base: Run, schema: Schema, key: str) -> str:
    if run is None:
        return "refused"
    try:
        made = for_runner(run, schema)
    except UserError:
        return "refused"
    if not obeyed(made):
        return "refused"
    without = " ".join(line for line in made.differences if line.startswith("without effect"))
    if key.rpartition("/")[2] in without.replace(",", "").split():
        return "said to have no effect"
    places: dict[str, Any] = {"settings": {}, "keys": {}, "spelled": {}, "read": frozenset()}
    if replace(made, **places) != replace(base, **places):
        return "read, and it changes the run"
    above = [key[:end] for end, character in enumerate(key) if character == "/"]
    return "read" if made.read & {key, *above} else "passed over"


@pytest.mark.parametrize("name", BASES)
def test_no_key_is_silently_passed_over(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda package: package)  # packages that need not be here
    trainer, process, tree = BASES[name]
    schema = table(trainer)
    run = run_of(trainer, tree)
    assert run is not None
    base = for_runner(run, schema)
    assert obeyed(base), base.refused
    found = {
        key: outcome(run_of(trainer, put(tree, key, other(known, at(tree, key)))), base, schema, key)
        for key, known in keys_of(schema, process)
    }
    counts = Counter(found.values())
    print(f"{name}: {len(found)} keys, {', '.join(f'{n} {what}' for what, n in sorted(counts.items()))}")
    assert len(found) > 150
    assert [key for key, what in found.items() if what == "passed over"] == []


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("ai-toolkit zimage", "model/qtype", "none"),
        ("ai-toolkit flux", "model/qtype_te", "uint4"),
        ("SimpleTuner zimage", "base_model_default_dtype", "fp32"),
        ("SimpleTuner flux", "disable_assistant_lora", True),
        ("sd-scripts flux", "masked_loss", True),
        ("sd-scripts flux", "wandb_api_key", "x"),
        ("musubi-tuner zimage", "fp8_scaled", True),
    ],
)
def test_what_counts_only_beside_another_setting_is_not_refused_without_it(name: str, key: str, value: Any) -> None:
    trainer, _, tree = BASES[name]
    run = run_of(trainer, tree)
    assert run is not None
    base = for_runner(run, table(trainer))
    assert outcome(run_of(trainer, put(tree, key, value)), base, table(trainer), key) == "said to have no effect"


# What people choose among named values, by the config that is tried; the page on training has a table of it.
CHOICES = {
    "ai-toolkit zimage": (
        *("network/type", "train/optimizer", "train/lr_scheduler", "train/loss_type", "train/loss_target"),
        *("train/timestep_type", "datasets/0/controls"),
    ),
    "SimpleTuner flux": (
        *("lr_scheduler", "base_model_precision", "flux_lora_target", "flux_guidance_mode", "lora_init_type"),
        *("lora_format", "peft_lora_mode", "layer_freeze_strategy", "timestep_bias_strategy", "flow_timesteps_mode"),
        "distillation_method",
    ),
    "sd-scripts flux": (
        *("optimizer_type", "model_prediction_type", "loss_type", "resize_interpolation", "save_model_as"),
    ),
    "musubi-tuner zimage": ("optimizer_type", "lr_scheduler", "timestep_sampling", "weighting_scheme"),
}
PAGE = Path(__file__).parents[3] / "docs" / "train.md"
HEAD = "| config of | setting | refused | the same word elsewhere |\n|---|---|---|---|\n"


def refused_table() -> str:
    """Of each choice the values that the runner refuses, and which other trainers name them for a like setting."""
    rows: list[str] = []
    for name, keys in CHOICES.items():
        trainer, process, tree = BASES[name]
        schema = table(trainer)
        run = run_of(trainer, tree)
        assert run is not None
        base = for_runner(run, schema)
        of = dict(keys_of(schema, process))
        for key in keys:
            tried = [one for one in of[key].choices if not same(one, of[key].default)]
            values = [
                one for one in tried if outcome(run_of(trainer, put(tree, key, one)), base, schema, key) == "refused"
            ]
            assert values, key
            elsewhere = {one: [t for t in takers(key.rpartition("/")[2], one) if t != trainer] for one in values}
            others = "; ".join(f"`{one}`: {', '.join(found)}" for one, found in elsewhere.items() if found)
            rows.append(
                f"| {trainer} | `{key.replace('/0', '')}` | {', '.join(f'`{v}`' for v in values)} | {others} |"
            )
    return HEAD + "".join(f"{row}\n" for row in rows)


def test_the_page_names_what_is_refused(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda package: package)
    page, made = PAGE.read_text(encoding="utf-8"), refused_table()
    before, head, after = page.partition(HEAD)
    assert head
    rows, _, rest = after.partition("\n\n")
    if request.config.getoption("--golden"):
        PAGE.write_text(f"{before}{made}\n{rest}", encoding="utf-8")
        return
    assert f"{head}{rows}\n" == made, "python -m pytest tests/doctor/trainers/test_every_key.py --golden"
