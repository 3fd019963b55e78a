"""`zdoctor check` of several configs: files, folders and patterns, one summary, one exit code."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest

from zdoctor.doctor.cli import main
from zdoctor.doctor.commands.configs import configs_of
from zdoctor.doctor.errors import UserError
from zdoctor.reports import FORMATS
from zdoctor.tests.machines import load
from zdoctor.tests.reports.read_back import READERS
from zdoctor.tests.reports.sarif_schema import SARIF

ROOT = Path(__file__).parents[3]
MACHINE = str(ROOT / "examples" / "kaggle_t4x2.json")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_state_folder: Path) -> Path:
    """Two configs, one of them broken and one deeper; beside them what is none."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deep" / "deeper").mkdir(parents=True)
    shutil.copy(ROOT / "examples" / "kaggle_zimage.yaml", "sick.yaml")
    shutil.copy(ROOT / "examples" / "kaggle_zimage.yaml", "deep/deeper/sick.yaml")
    (tmp_path / "deep" / "other.yaml").write_text("services:\n  web:\n    image: nginx\n")
    (tmp_path / "deep" / "package.json").write_text('{"name": "x"}')
    (tmp_path / "deep" / "not.yaml").write_bytes(b"\xff\xfe\x00")
    for hidden in (".git", "node_modules"):
        (tmp_path / hidden).mkdir()
        shutil.copy("sick.yaml", f"{hidden}/sick.yaml")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["sick.yaml"], ["sick.yaml"]),
        (["."], ["sick.yaml", "deep/deeper/sick.yaml"]),
        (["deep", "sick.yaml", "deep/deeper/sick.yaml"], ["deep/deeper/sick.yaml", "sick.yaml"]),
        (
            ["**/*.yaml"],
            ["deep/deeper/sick.yaml", "deep/not.yaml", "deep/other.yaml", "node_modules/sick.yaml", "sick.yaml"],
        ),
        (["missing.yaml"], ["missing.yaml"]),
    ],
)
def test_what_the_words_lead_to(folder: Path, words: list[str], found: list[str]) -> None:
    assert [Path(config).as_posix() for config in configs_of(words)] == found


@pytest.mark.parametrize("names", [["sick.yaml"], ["sick.yaml", "deep/deeper/sick.yaml"]])
def test_a_config_that_cannot_be_read_is_in_the_exit_code_of_the_json(
    folder: Path, names: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["check", *names, "gone.yaml", "--machine", MACHINE, "--format", "json"])
    told = json.loads(capsys.readouterr().out)
    assert (code, told["exit_code"], told["ok"]) == (2, 2, False)
    assert (told["schema"], len(told["reports"])) == ("zdoctor.reports/1", len(names))
    assert main(["check", *names, "--machine", MACHINE, "--format", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["exit_code"] == 1


@pytest.mark.parametrize("word", ["no*.yaml", "deep/deeper/../empty"])
def test_a_word_that_leads_to_nothing_is_a_mistake(folder: Path, word: str) -> None:
    (folder / "deep" / "empty").mkdir()
    with pytest.raises(UserError, match=r"fits no file|holds no config"):
        configs_of([word])


def test_a_file_of_that_very_name_is_no_pattern(folder: Path) -> None:
    shutil.copy("sick.yaml", "[a].yaml")
    assert configs_of(["[a].yaml"]) == ["[a].yaml"]


def of_json(text: str) -> list[str]:
    told = json.loads(text)
    assert told["schema"] == "zdoctor.reports/1" and not told["ok"] and len(told["reports"]) == 2
    return [f["rule"] for report in told["reports"] for f in report["findings"] if f["severity"] == "error"]


def of_sarif(text: str) -> list[str]:
    told = json.loads(text)
    jsonschema.validate(told, SARIF)
    return [r["ruleId"] for run in told["runs"] for r in run["results"] if r["level"] == "error"]


def of_junit(text: str) -> list[str]:
    top = ElementTree.fromstring(text)
    assert top.get("failures") == "4" and len(top) == 2  # of rules, not of findings
    cases = [case for suite in top for case in suite.iter("testcase") if case.find("failure") is not None]
    return [str(case.get("name")).split()[0] for case in cases for _ in case.iter("failure")]


TOLD: dict[str, Callable[[str], list[str]]] = {
    "json": of_json,
    "sarif": of_sarif,
    "junit": of_junit,
    "github": lambda text: re.findall(r"^::error .*title=(\S+)", text, re.M),
}


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_tells_of_all(folder: Path, format: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code = main(["check", "sick.yaml", "deep", "--machine", MACHINE, "--format", format, "-v", "-o", str(out)])
    text = out.read_text(encoding="utf-8")
    errors = TOLD[format](text) if format in TOLD else READERS[format](text).errors
    assert code == 1 and sorted(set(errors)) == ["MDL003", "PTH001"]
    assert len(errors) == (4 if format == "junit" else 6)


def test_the_summary(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is wrong stands last, nearest to what to type next; a file that is not there hides nothing."""
    shutil.copy(ROOT / "tests" / "configs" / "server_healthy.yaml", "good.yaml")
    (folder / "m.json").write_text(json.dumps(load("healthy")))
    assert main(["check", "sick.yaml", "good.yaml", "gone.yaml", "--machine", "m.json"]) == 2
    said = capsys.readouterr()
    assert "gone.yaml: there is no such file." in said.err
    assert said.out.index("\ngood.yaml: nothing found\n") < re.search(r"\nsick\.yaml: \d+ error", said.out).start()  # type: ignore[union-attr]
    assert "\n1 of 2 configs have errors\n" in said.out and "\nnext: zdoctor " in said.out
    assert main(["check", "sick.yaml", "good.yaml", "--machine", "m.json"]) == 1
    assert main(["check", "sick.yaml", "good.yaml", "--machine", "m.json", "--exit-zero"]) == 0
    assert main(["check", "good.yaml", "good.yaml", "--machine", "m.json"]) == 0


def test_no_report_replaces_a_config(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "sick.yaml", "deep", "-o", "deep/deeper/sick.yaml"]) == 2
    assert "the report would replace it" in capsys.readouterr().err
