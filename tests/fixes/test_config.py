"""Repairs of the config: a cure cures, changes one line, and leaves what is not certain to the user."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
import yaml

from zdoctor.doctor.configs.edit import EditError, apply_edits
from zdoctor.doctor.model import Finding, ReplaceText, SetValue, WriteText
from zdoctor.doctor.trainers.read import read_config
from zdoctor.tests.checks.config_cases import CORPUS, KAGGLE, LINUX, examined

JSON = json.dumps(yaml.safe_load(KAGGLE), indent=2)


def cured(text: str, finding: Finding) -> str:
    """The text after the finding's first fix."""
    steps = finding.fixes[0].steps
    if isinstance(steps[0], WriteText):
        return steps[0].text
    return apply_edits(text, [step for step in steps if isinstance(step, ReplaceText | SetValue)])


@pytest.mark.parametrize(
    ("text", "path", "safety"),
    [
        (KAGGLE.replace('dtype: "bf16"\n        diff', 'dtype: "bf16\n        diff'), "c.yaml", "safe"),
        (KAGGLE.replace('neg: ""', 'neg: "no\n        fps: "16"'), "c.yaml", "safe"),
        (KAGGLE.replace("        lr:", "\tlr:"), "c.yaml", "ask"),
        ("\ufeff" + JSON, "c.json", "safe"),
        (JSON.replace('"version": "1.0"', '"version": "1.0",'), "c.json", "safe"),
    ],
)
def test_a_broken_file_reads_again(text: str, path: str, safety: str) -> None:
    (finding,) = examined(text, "CFG001", path=path)
    assert finding.fixes[0].safety == safety
    if safety == "safe":
        done = cured(text, finding)
        assert not examined(done, "CFG001", path=path)
        assert finding.fixes[0].training_effect == "none"


@pytest.mark.parametrize("mark", [b"", b"\xff\xfe"])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_becomes_utf8(encoding: str, mark: bytes) -> None:
    data = (mark if encoding == "utf-16-le" else mark[::-1]) + KAGGLE.encode(encoding)
    with pytest.raises((UnicodeDecodeError, yaml.reader.ReaderError)):
        yaml.safe_load(data.decode())
    (finding,) = examined(data, "CFG001")
    assert finding.fixes[0].safety == "safe"
    assert cured("", finding) == KAGGLE


def test_windows_1252_is_asked() -> None:
    data = KAGGLE.replace("a red paper lantern", "caf\xe9").encode("cp1252")
    (finding,) = examined(data, "CFG001")
    assert finding.fixes[0].safety == "ask"
    assert "caf\xe9" in cured("", finding)


@pytest.mark.parametrize(("os", "command"), [("linux", "export OUT=..."), ("windows", '$env:OUT = "..."')])
def test_a_variable_is_only_shown(os: Literal["linux", "windows"], command: str) -> None:
    text = KAGGLE.replace("/kaggle/working/lantern_lora", "${OUT}")
    (finding,) = examined(text, "CFG001", system=replace(LINUX, os=os))
    (fix,) = finding.fixes
    assert (fix.safety, fix.steps, fix.command) == ("show", (), command)


@pytest.mark.parametrize(
    "text",
    [
        KAGGLE.replace("lr: 0.00015", "lr: [1"),
        KAGGLE.replace('neg: ""', 'neg: "a # b\n        fps: "16"'),
        JSON.replace('"version": "1.0"', '"version" "1.0"'),
    ],
)
def test_what_is_not_certain_is_left(text: str) -> None:
    (finding,) = examined(text, "CFG001", path="c.json" if text.startswith("{") else "c.yaml")
    assert not [fix for fix in finding.fixes if fix.safety == "safe"]


def test_the_trainers_own_broken_example() -> None:
    path = Path(CORPUS / "config" / "examples" / "train_lora_omnigen2_24gb.yaml")
    if not path.exists():
        pytest.skip("the corpus is absent")
    text = path.read_text()
    (finding,) = examined(text, "CFG001")
    done = cured(text, finding)
    assert read_config("c.yaml", done.encode(), {}).config.problem is None
    assert sum(a != b for a, b in zip(text.splitlines(), done.splitlines(), strict=True)) == 1


@pytest.mark.parametrize(
    ("text", "path"), [(KAGGLE, "c.yaml"), (JSON, "c.json"), (KAGGLE.replace("\n", "\r\n"), "c.yaml")]
)
def test_a_key_is_renamed(text: str, path: str) -> None:
    sick = (
        text.replace("name_or_path", "name_or_paht").replace("network:", "netwrok:").replace('"network"', '"netwrok"')
    )
    findings = examined(sick, "CFG002", path=path)
    assert {f.evidence["key"] for f in findings} == {"netwrok", "name_or_paht"}
    for finding in findings:
        (fix,) = finding.fixes
        assert (fix.safety, fix.training_effect) == ("ask", "changes-result")
        sick_now = cured(sick, finding)
        assert finding.evidence["key"] not in {f.evidence["key"] for f in examined(sick_now, "CFG002", path=path)}


def test_a_rename_never_overwrites() -> None:
    text = KAGGLE.replace("        linear: 32\n", "        linear: 32\n        linaer: 16\n")
    (finding,) = examined(text, "CFG002")
    if finding.fixes and finding.evidence["new"] == "linear":
        with pytest.raises(EditError):
            cured(text, finding)


@pytest.mark.parametrize(
    ("old", "new", "safety"),
    [
        ('"sigmoid"', '"sigmod"', "safe"),
        ('"zimage:turbo"', '"z-image"', "safe"),
        ("0.00015", '"1.5e-4"', "safe"),
        ("[768, 1024]", '["768", "1024"]', "safe"),
        ('"adamw8bit"', '"adamw8bits"', "safe"),
        ('"mse"', '"msee"', "ask"),
        ('"flowmatch"\n        optimizer', '"flow_match"\n        optimizer', "ask"),
    ],
)
def test_a_value_is_corrected(old: str, new: str, safety: str) -> None:
    sick = KAGGLE.replace(old, new)
    assert sick != KAGGLE
    (finding,) = examined(sick, "CFG004")
    (fix,) = finding.fixes
    assert fix.safety == safety
    assert (fix.training_effect == "none") is (safety == "safe")
    done = cured(sick, finding)
    assert not examined(done, "CFG004")
    assert sum(a != b for a, b in zip(sick.splitlines(), done.splitlines(), strict=True)) == 1
