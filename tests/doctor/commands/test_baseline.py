"""`zdoctor check --baseline`: what is known is counted, what is new is told, and nothing else is hidden."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from zdoctor.doctor.cli import main
from zdoctor.reports import FORMATS
from zdoctor.tests.reports.documents import valid
from zdoctor.tests.reports.sarif_schema import SARIF

ROOT = Path(__file__).parents[3]
MACHINE = str(ROOT / "examples" / "kaggle_t4x2.json")
STEPS = "        steps: 2000"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "configs").mkdir()
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        shutil.copy(ROOT / "examples" / "kaggle_zimage.yaml", f"configs/{name}.yaml")
    return tmp_path


def check(*words: str, baseline: str = "known.json") -> int:
    return main(["check", *words, "--machine", MACHINE, "--baseline", baseline])


def told(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()
    check(*words, "--format", "json")
    made: dict[str, Any] = valid(capsys.readouterr().out)
    return made


def entries(file: str = "known.json") -> Mapping[str, Any]:
    made: Mapping[str, Any] = json.loads(Path(file).read_text())["configs"]
    return made


def misspell(config: str) -> None:
    text = Path(config).read_text()
    assert STEPS in text
    Path(config).write_text(text.replace(STEPS, "        stepps: 2000"))


def test_what_is_written_is_known_from_then_on(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "configs/one.yaml", "--machine", MACHINE]) == 1
    assert check("configs/one.yaml", "--write-baseline") == 0
    report = told(capsys, "configs/one.yaml")
    assert report["ok"] and not report["findings"]
    assert {"PTH001", "MDL003"} <= {finding["rule"] for finding in report["baseline"]["known"]}
    assert len(report["baseline"]["known"]) == len(entries()["configs/one.yaml"])


def test_what_is_new_is_told_and_counts(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check("configs/one.yaml", "--write-baseline")
    misspell("configs/one.yaml")
    report = told(capsys, "configs/one.yaml")
    assert {finding["rule"] for finding in report["findings"]} >= {"CFG002"}
    assert not {"PTH001", "MDL003"} & {finding["rule"] for finding in report["findings"]}
    assert check("configs/one.yaml") == main(
        ["check", "configs/one.yaml", "--machine", MACHINE, "--select", "CFG002"]
    )


def test_one_more_of_a_kind_is_new(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check("configs/one.yaml", "--write-baseline")
    kept = json.loads(Path("known.json").read_text())
    of = kept["configs"]["configs/one.yaml"]
    twice = [one for one in of if one["rule"] == "MDL003"]
    assert len(twice) > 1
    kept["configs"]["configs/one.yaml"] = [one for one in of if one is not twice[0]]
    Path("known.json").write_text(json.dumps(kept))
    assert [finding["rule"] for finding in told(capsys, "configs/one.yaml")["findings"]] == ["MDL003"]


def test_lines_may_move(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check("configs/one.yaml", "--write-baseline")
    Path("configs/one.yaml").write_text("# a line\n\n" + Path("configs/one.yaml").read_text())
    report = told(capsys, "configs/one.yaml")
    assert not report["findings"] and not report["baseline"]["gone"]


def test_what_is_gone_is_counted_and_taken_out(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    misspell("configs/one.yaml")
    check("configs/one.yaml", "--write-baseline")
    before = len(entries()["configs/one.yaml"])
    shutil.copy(ROOT / "examples" / "kaggle_zimage.yaml", "configs/one.yaml")
    gone = told(capsys, "configs/one.yaml")["baseline"]["gone"]
    assert gone >= 1
    check("configs/one.yaml")
    assert f"{gone} of known.json gone (--write-baseline takes" in " ".join(capsys.readouterr().out.split())
    check("configs/one.yaml", "--write-baseline")
    assert len(entries()["configs/one.yaml"]) == before - gone
    assert told(capsys, "configs/one.yaml")["baseline"]["gone"] == 0


def test_a_rule_that_was_not_asked_keeps_its_entries(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check("configs/one.yaml", "--write-baseline")
    before = entries()
    assert told(capsys, "configs/one.yaml", "--select", "TRN")["baseline"]["gone"] == 0
    check("configs/one.yaml", "--write-baseline", "--select", "TRN")
    key = "fingerprint"
    assert sorted(one[key] for one in entries()["configs/one.yaml"]) == sorted(
        one[key] for one in before["configs/one.yaml"]
    )


def test_several_configs_have_their_own_entries(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check("configs", "--write-baseline")
    assert list(entries()) == ["configs/one.yaml", "configs/two.yaml"]
    misspell("configs/two.yaml")
    capsys.readouterr()
    check("configs")
    out = " ".join(capsys.readouterr().out.split())
    assert "CFG002" in out and "PTH001" not in out and "known by known.json" in out
    Path("configs/one.yaml").unlink()
    check("configs/two.yaml", "--write-baseline")
    assert list(entries()) == ["configs/two.yaml"]


def test_it_counts_from_its_own_folder(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check("configs/one.yaml", "--write-baseline")
    monkeypatch.chdir(project / "configs")
    assert check("one.yaml", baseline="../known.json") == 0


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_counts_what_is_known_and_tells_what_is_not_judged(
    project: Path, capsys: pytest.CaptureFixture[str], format: str
) -> None:
    check("configs/one.yaml", "--write-baseline")
    capsys.readouterr()
    assert check("configs/one.yaml", "--format", format) == 0
    out = capsys.readouterr().out
    assert "known.json" in out
    assert "not judged" in out or "not_judged" in out or "not-judged" in out
    assert check("configs/one.yaml", "--format", format, "--strict") == 3


def test_the_verdict_is_neither_green_nor_empty(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check("configs/one.yaml", "--write-baseline")
    assert "nothing new, " in capsys.readouterr().out


def test_sarif_says_the_state_of_each_result(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check("configs/one.yaml", "--write-baseline")
    misspell("configs/one.yaml")
    capsys.readouterr()
    check("configs/one.yaml", "--format", "sarif")
    made = json.loads(capsys.readouterr().out)
    jsonschema.validate(made, SARIF)
    results = made["runs"][0]["results"]
    states = {(one["ruleId"], one["baselineState"]) for one in results}
    assert ("PTH001", "unchanged") in states and ("CFG002", "new") in states
    prints = [one["partialFingerprints"]["ruleAndKey/v1"] for one in results]
    assert len(set(prints)) == len(prints)
    main(["check", "configs/one.yaml", "--machine", MACHINE, "--format", "sarif"])
    plain = json.loads(capsys.readouterr().out)["runs"][0]["results"]
    assert sorted(one["partialFingerprints"]["ruleAndKey/v1"] for one in plain) == sorted(prints)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            '{"schema": "zdoctor.baseline/0", "known": []}',
            "its schema is 'zdoctor.baseline/0', not zdoctor.baseline/1",
        ),
        ('{"schema": "zdoctor.baseline/2", "configs": {}}', "its schema is 'zdoctor.baseline/2', not"),
        ('{"schema": "zdoctor.baseline/1", "configs": []}', "it cannot be read ("),
        ('{"schema": "zdoctor.baseline/1", "configs": {"configs/one.yaml": [1]}}', "it cannot be read ("),
        ('<<<<<<< ours\n{"schema": "zdoctor.baseline/1"}', "it cannot be read (JSONDecodeError"),
        ("[1, 2]", "it is no baseline"),
        ("[" * 100_000, "it cannot be read (RecursionError"),
        ("\x00\x01", "it cannot be read ("),
    ],
)
def test_a_baseline_of_another_shape_hides_nothing(
    project: Path, capsys: pytest.CaptureFixture[str], text: str, says: str
) -> None:
    Path("known.json").write_text(text)
    report = told(capsys, "configs/one.yaml")
    assert report["baseline"]["problem"].startswith(says)
    assert {"PTH001", "MDL003"} <= {finding["rule"] for finding in report["findings"]}
    assert check("configs/one.yaml") == 1
    assert f"known.json: {says}"[:40] in " ".join(capsys.readouterr().out.split())


def test_another_version_of_the_same_shape_counts_and_is_named_where_it_differs(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check("configs/one.yaml", "--write-baseline")
    kept = json.loads(Path("known.json").read_text())
    kept["version"] = "0.0.1"
    Path("known.json").write_text(json.dumps(kept))
    assert told(capsys, "configs/one.yaml")["baseline"]["problem"] is None
    next(one for one in kept["configs"]["configs/one.yaml"] if one["rule"] == "PTH001")["fingerprint"] = "0" * 16
    Path("known.json").write_text(json.dumps(kept))
    report = told(capsys, "configs/one.yaml")
    assert [finding["rule"] for finding in report["findings"]] == ["PTH001"]
    assert report["baseline"]["gone"] == 1 and "zdoctor 0.0.1" in report["baseline"]["problem"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--baseline", "none.json"], "--write-baseline writes it"),
        (["--write-baseline"], "no baseline was named"),
        (["--baseline", "configs", "--write-baseline"], "configs cannot be read"),
        (["--baseline", "none/none.json", "--write-baseline"], "cannot be written"),
        (["--baseline", "configs/two.yaml", "--write-baseline"], "is no baseline of zdoctor, and would be replaced"),
        (["--baseline", "known.json", "-o", "known.json"], "is what was looked at; the report would replace it"),
    ],
)
def test_a_mistake_is_said_and_writes_nothing(
    project: Path, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    check("configs/two.yaml", "--write-baseline")
    before = {file: file.read_bytes() for file in project.rglob("*") if file.is_file()}
    capsys.readouterr()
    assert main(["check", "configs/one.yaml", "--machine", MACHINE, *words]) == 2
    assert says in capsys.readouterr().err
    assert {file: file.read_bytes() for file in project.rglob("*") if file.is_file()} == before


def test_a_config_that_cannot_be_read_keeps_its_entries(project: Path) -> None:
    check("configs", "--write-baseline")
    before = entries()
    Path("configs/one.yaml").write_text("config: [\n")
    check("configs/one.yaml", "configs/two.yaml", "--write-baseline")
    kept = {one["fingerprint"] for one in entries()["configs/one.yaml"]}
    assert {one["fingerprint"] for one in before["configs/one.yaml"] if one["rule"] != "CFG001"} <= kept
