"""`zdoctor schema`, `--trainer-source`, and a checkout beside the config, as a user meets them."""

import json
import re
from pathlib import Path

import pytest

from zdoctor.doctor.cli import main
from zdoctor.doctor.schema.tables import from_json
from zdoctor.doctor.trainers import names
from zdoctor.tests.checks.config_cases import KAGGLE
from zdoctor.tests.doctor.schema.checkouts import AI_TOOLKIT, SD_SCRIPTS, checkout


def run(*words: str) -> int:
    try:
        return main(words)
    except SystemExit as stop:
        return int(stop.code or 0)


def unknown_keys(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    capsys.readouterr()
    run("check", "--format", "json", "--select", "CFG002", *words)
    return [finding["evidence"]["key"] for finding in json.loads(capsys.readouterr().out)["findings"]]


@pytest.mark.parametrize("name", names())
def test_every_trainer_has_a_schema_for_editors(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("schema", name) == 0
    assert json.loads(capsys.readouterr().out)["title"] == f"{name} config"


def test_a_checkout_is_mined_into_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = checkout(tmp_path / "here", SD_SCRIPTS)
    assert run("schema", "mine", str(root), "-o", str(tmp_path / "table.json")) == 0
    assert "network_dim" in from_json(json.loads((tmp_path / "table.json").read_text())).sections[""]
    (root / "requirements.txt").write_text("-r more.txt\neinops==0.7.0  # pinned\n-e .\n")
    (root / "more.txt").write_text("numpy<2 ; python_version < '3.13'\n")
    assert run("schema", "mine", str(root), "-o", str(tmp_path / "table.json")) == 0
    table = from_json(json.loads((tmp_path / "table.json").read_text()))
    assert table.requirements == (("einops==0.7.0", "numpy<2 ; python_version < '3.13'"),)
    assert run("schema", "sd-scripts", str(root)) == 0
    assert "network_dim" in json.loads(capsys.readouterr().out)["properties"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["schema", "mine"], "no checkout was named"),
        (["schema", "mine", "empty"], "is no checkout of"),
        (["schema", "ai-toolkit", "scripts"], "is a checkout of sd-scripts"),
        (["check", "c.yaml", "--trainer-source", "empty"], "is no checkout of"),
        (["check", "c.yaml", "--trainer-source", "nowhere"], "there is no such folder"),
    ],
)
def test_what_is_no_checkout_is_one_clear_line(
    words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "c.yaml").write_text(KAGGLE)
    checkout(tmp_path / "scripts", SD_SCRIPTS)
    assert run(*words) == 2
    error = capsys.readouterr().err
    assert says in error and error.startswith("zdoctor: ") and "Traceback" not in error


def test_the_keys_of_the_checkout_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = checkout(tmp_path / "their-toolkit", AI_TOOLKIT)
    config = re.sub(r"type: .*_trainer.*", "type: sd_trainer", KAGGLE)
    inside = root / "config" / "mine.yaml"
    inside.parent.mkdir()
    inside.write_text(config)
    outside = tmp_path / "elsewhere" / "c.yaml"
    outside.parent.mkdir()
    outside.write_text(config)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    assert "gradient_checkpointing" in unknown_keys(capsys, str(inside))  # this checkout does not read it
    assert "lr" not in unknown_keys(capsys, str(inside))
    assert unknown_keys(capsys, str(outside)) == []
    assert "gradient_checkpointing" in unknown_keys(capsys, str(outside), "--trainer-source", str(root))
    assert sorted(tmp_path.rglob("*")) == before


def test_a_checkout_of_another_trainer_leaves_the_rule_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = checkout(tmp_path / "scripts", SD_SCRIPTS)
    (tmp_path / "c.yaml").write_text(KAGGLE)
    run("check", str(tmp_path / "c.yaml"), "--format", "json", "--select", "CFG002", "--trainer-source", str(root))
    (unknown,) = json.loads(capsys.readouterr().out)["unknown"]
    assert "is no checkout of ai-toolkit" in unknown["reason"]
