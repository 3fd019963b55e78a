"""The JSON schemas for editors are valid, and what the trainers ship validates against them."""

import json
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from jsonschema import Draft202012Validator

from zdoctor.doctor.model import Key, Schema
from zdoctor.doctor.rules import all_rules
from zdoctor.doctor.schema.editor import editor_schema
from zdoctor.doctor.schema.tables import shipped
from zdoctor.doctor.trainers import names
from zdoctor.doctor.trainers.ai_toolkit.editor import KNOWN
from zdoctor.doctor.trainers.read import read_config
from zdoctor.tests.checks.config_cases import KAGGLE, SHARED

CORPUS = SHARED / "corpus"


def validator(trainer: str) -> Draft202012Validator:
    schema = shipped(trainer)
    assert schema is not None
    return Draft202012Validator(editor_schema(schema))


def tree(path: str, data: bytes) -> Any:
    """A YAML text as ai-toolkit's reader makes it."""
    reading = read_config(path, data, {})
    values = reading.config.values
    return {pointer[1:]: value.value for pointer, value in values.items() if pointer.count("/") == 1}


def complaints(trainer: str, config: Any) -> list[str]:
    found: list[str] = []
    for error in validator(trainer).iter_errors(config):
        found.append(f"{error.json_path}: {error.message[:120]}")
    return found


@pytest.mark.parametrize("trainer", sorted(names()))
def test_it_is_a_json_schema(trainer: str) -> None:
    schema = shipped(trainer)
    assert schema is not None
    made = json.loads(json.dumps(editor_schema(schema)))
    Draft202012Validator.check_schema(made)
    assert schema.commit in made["$comment"]


@pytest.mark.parametrize(
    "path", sorted((CORPUS / "ai-toolkit").rglob("*.y*ml")) or [None], ids=lambda p: p.name if p else "absent"
)
def test_examples_of_ai_toolkit(path: Path | None) -> None:
    if path is None:
        pytest.skip(f"the corpus is not at {CORPUS}")
    if "omnigen2" in path.name:
        return  # it does not parse
    config = tree(path.name, path.read_bytes())
    assert config
    assert not complaints("ai-toolkit", config)


def test_examples_of_simpletuner() -> None:
    paths = sorted((CORPUS / "simpletuner").rglob("*.json"))
    if not paths:
        pytest.skip(f"the corpus is not at {CORPUS}")
    check = validator("SimpleTuner")
    for path in paths:
        if path.name in ("lycoris_config.json", "user_prompt_library.json") or "hidream.peft-controlnet" in str(path):
            continue
        errors = list(check.iter_errors(json.loads(path.read_bytes())))
        assert not errors, (path, errors[0].message[:200])


def test_a_slip_is_underlined_where_it_stands() -> None:
    sick = tree("c.yaml", KAGGLE.replace("lr:", "lrr:").replace("gradient_checkpointing: true", "gc: 1").encode())
    found = complaints("ai-toolkit", sick)
    assert any("$.config.process[0].train" in line and "lrr" in line for line in found)
    assert not complaints("ai-toolkit", tree("c.yaml", KAGGLE.encode()))
    assert complaints("SimpleTuner", {"model_family": "z-image"}) == []  # a text may be a variable; CFG004 speaks
    assert "model_famly" in complaints("SimpleTuner", {"model_famly": "z_image"})[0]


def test_toml_of_the_kohya_trainers() -> None:
    healthy = '[model]\nae = "a"\nblocks_to_swap = 18\n[train]\nlearning_rate = 1e-4\n'
    assert not complaints("sd-scripts", tomlkit.parse(healthy).unwrap())
    assert complaints("sd-scripts", tomlkit.parse(healthy.replace("learning_rate", "learnin_rate")).unwrap())
    datasets = '[general]\nbatch_size = 1\n[[datasets]]\nresolution = 512\n[[datasets.subsets]]\nimage_dir = "a"\n'
    assert not complaints("sd-scripts", tomlkit.parse(datasets).unwrap())
    assert complaints("sd-scripts", tomlkit.parse(datasets.replace("image_dir", "imgae_dir")).unwrap())
    of_musubi = '[general]\nbatch_size = 1\n[[datasets]]\nimage_directory = "a"\n'
    assert not complaints("musubi-tuner", tomlkit.parse(of_musubi).unwrap())
    assert complaints("musubi-tuner", tomlkit.parse(of_musubi.replace("image_directory", "image_dir")).unwrap())


def test_a_trainer_without_a_form_of_its_own_has_its_options() -> None:
    made = editor_schema(
        Schema("made-up", "", "", {"": {"steps": Key("int", 10, True), "list": Key()}, "list/*": {}})
    )
    assert made["properties"]["steps"]["default"] == 10 and made["properties"]["list"]["items"]["properties"] == {}
    assert not list(Draft202012Validator(made).iter_errors({"steps": 5}))
    assert list(Draft202012Validator(made).iter_errors({"stepps": 5}))


def test_hovers_name_keys_and_rules_that_there_are() -> None:
    schema, rules = shipped("ai-toolkit"), {rule.id for rule in all_rules()}
    assert schema is not None
    for path, (rule, sentence) in KNOWN.items():
        assert schema.key(path) is not None, path
        assert rule in rules, path
        assert sentence.endswith("."), path
