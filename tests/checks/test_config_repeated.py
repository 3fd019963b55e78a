"""CFG005: keys that are written twice, and what only looks like it."""

import json

import pytest
import yaml

from zdoctor.tests.checks.config_cases import KAGGLE, examined

TUNER = '{"model_family": "z_image", "model_type": "lora", "lora_rank": 4, "lora_rank": 16}'


def config(train: str) -> str:
    return f"job: extension\nconfig:\n  name: x\n  process:\n  - type: sd_trainer\n{train}"


@pytest.mark.parametrize(
    ("text", "line", "later", "severity", "words"),
    [
        (config("    train:\n      lr: 1.0e-4\n      steps: 5\n      lr: 2.0e-4\n"), 7, 9, "warning", "dropped"),
        (config("    train:\n      lr: 1.0e-4\n    train:\n      steps: 5\n"), 6, 8, "warning", "with lr"),
        (config("    train: {lr: 1.0e-4, lr: 2.0e-4}\n"), 6, 6, "warning", "dropped"),
        (config("    trigger_word: a\n    trigger_word: a\n"), 6, 7, "note", "dropped"),
        (config("    trigger_word: a\n").replace("config:", "job: extension\nconfig:", 1), 1, 2, "note", "dropped"),
    ],
)
def test_repeated_keys_of_yaml(text: str, line: int, later: int, severity: str, words: str) -> None:
    (finding,) = examined(text, "CFG005")
    assert finding.where is not None and finding.where.line == line
    assert (finding.evidence["line"], finding.severity) == (later, severity)
    assert words in finding.text()
    assert yaml.safe_load(text)["config"]["process"][0].keys() >= {"type"}  # the real parser says nothing


def test_repeated_keys_of_json() -> None:
    (finding,) = examined(TUNER, "CFG005", path="config.json")
    assert finding.evidence["key"] == "lora_rank" and finding.severity == "warning"
    assert json.loads(TUNER)["lora_rank"] == 16


def test_three_times_is_said_of_both_that_do_not_count() -> None:
    text = config("    train:\n      lr: 1\n      lr: 2\n      lr: 3\n")
    findings = examined(text, "CFG005")
    assert [(f.where and f.where.line, f.evidence["line"]) for f in findings] == [(7, 9), (8, 9)]
    assert yaml.safe_load(text)["config"]["process"][0]["train"]["lr"] == 3


@pytest.mark.parametrize(
    "text",
    [
        KAGGLE,
        config("    train: {lr: 1}\n    sample: {lr: 1}\n"),
        config("    datasets:\n    - folder_path: a\n    - folder_path: b\n"),
        "base: &base {lr: 1, steps: 2}\n" + config("    train:\n      <<: *base\n      lr: 3\n"),
        "base: &base {lr: 1, steps: 2}\n" + config("    train: *base\n    sample: *base\n"),
        config("    train: {'lr': 1, LR: 2}\n"),
    ],
)
def test_what_only_looks_repeated(text: str) -> None:
    assert not examined(text, "CFG005")


def test_an_alias_of_a_repetition_says_it_once() -> None:
    text = "base: &base {lr: 1, lr: 2}\n" + config("    train: *base\n    other: {<<: *base}\n")
    assert len(examined(text, "CFG005")) == 1
