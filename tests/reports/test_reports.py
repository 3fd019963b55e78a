"""Golden reports: what a user and a program read. Regenerate with `python -m pytest tests/reports --golden`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from zdoctor.doctor import apply as writer
from zdoctor.doctor.examine.engine import prescribe
from zdoctor.doctor.examine.examination import examine_config
from zdoctor.doctor.model import Finding, Outcome, Report, Where, found
from zdoctor.doctor.probe.recorded import RecordedWorld
from zdoctor.reports import Checked, terminal, words
from zdoctor.reports import json as json_report
from zdoctor.reports import plan as plan_report
from zdoctor.reports.painting import Screen, paint
from zdoctor.tests.machines import load

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
CASES = {
    "kaggle": ("kaggle_t4x2", "examples/kaggle_zimage.yaml"),
    "windows": ("windows_hdd", "tests/configs/windows_escapes.yaml"),
    "wsl": ("wsl_laptop", "tests/configs/wsl_hub.yaml"),
    "healthy": ("healthy", "tests/configs/server_healthy.yaml"),
    "flux": ("flux_workstation", "tests/configs/flux_healthy.yaml"),
}


def report_of(case: str) -> Report:
    machine, config = CASES[case]
    text = (ROOT / config).read_text(encoding="utf-8")
    report = examine_config(Path(config).name, RecordedWorld(load(machine)), text=text.encode()).report
    return Report(**{**vars(report), "elapsed_ms": 42.0})


def compare(name: str, text: str, request: pytest.FixtureRequest) -> None:
    file = GOLDEN / name
    if request.config.getoption("--golden"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("case", CASES)
def test_json(case: str, request: pytest.FixtureRequest) -> None:
    compare(f"{case}.json", json_report.render([Checked(report_of(case))]), request)


@pytest.mark.parametrize("case", ["kaggle", "windows"])
def test_plan(case: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan is shown against the config's own text, which the diff reads from disk."""
    monkeypatch.chdir(tmp_path)
    _, config = CASES[case]
    (tmp_path / Path(config).name).write_bytes((ROOT / config).read_bytes())
    plan = prescribe(report_of(case))
    compare(f"{case}.plan.txt", paint(plan_report.lines(plan, writer.diff(plan))), request)


def test_colour_changes_no_word() -> None:
    report = report_of("kaggle")
    plain, coloured = paint(terminal.lines(report)), paint(terminal.lines(report), Screen(color=True))
    assert "\x1b[" in coloured and "\x1b[" not in plain
    bare = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert [line.rstrip() for line in bare.splitlines()] == plain.splitlines()


def test_places_are_links_where_the_terminal_has_them() -> None:
    report = report_of("windows")
    screen = Screen(color=True, folder="/home/me/a b")
    linked = paint(terminal.lines(report, screen), screen)
    assert "\x1b]8;" in linked and ";file:///home/me/a%20b/windows_escapes.yaml\x1b\\" in linked
    bare = re.sub(r"\x1b\[[0-9;]*m|\x1b\]8;[^\x1b]*\x1b\\", "", linked)
    plain = Screen(folder="/home/me/a b")
    assert [line.rstrip() for line in bare.splitlines()] == paint(terminal.lines(report, plain), plain).splitlines()
    assert "\x1b" not in paint(terminal.lines(report, plain), plain)


@pytest.mark.parametrize(
    ("report", "code"),
    [
        (Report("c", None), 0),
        (Report("c", None, (Finding("m", severity="warning"),)), 0),
        (Report("c", None, (Finding("m", severity="error"),)), 1),
        (Report("c", None, crashed=(Outcome("A", "b"),)), 3),
        (Report("c", None, (Finding("m", severity="error"),), crashed=(Outcome("A", "b"),)), 1),
        (Report("c", None, unknown=(Outcome("A", "b"),)), 0),
    ],
)
def test_the_exit_code_is_the_same_in_every_format(report: Report, code: int) -> None:
    assert report.exit_code == code
    assert json_report.as_data(report)["ok"] == (code == 0)
    assert "next: zdoctor train" not in paint(terminal.lines(report)) or code == 0


@pytest.mark.parametrize("color", [False, True])
def test_control_characters_of_a_path_do_not_reach_the_terminal(color: bool) -> None:
    finding = found(Where("c\x1b]0;owned\x07.yaml"), "{path} is \x9b31mred.", path="/data/\x1b[2Jx")
    text = paint(terminal.lines(Report("c", None, (finding,))), Screen(color=color))
    assert "\x1b]" not in text and "\x1b[2J" not in text and "\x07" not in text and "\x9b" not in text


def test_json_holds_names_that_are_not_utf8() -> None:
    report = Report("c", None, (found(Where("c"), "{path}", path="bad\udcff"),))
    text = json_report.render([Checked(report)])
    text.encode("utf-8")
    assert json.loads(text)["findings"][0]["message"] == "bad\udcff"


def test_json_survives_awkward_evidence() -> None:
    finding = found(Where("c"), "{a}", a="ü", evidence={"nan": float("nan"), "t": (1, 2), "p": Path("x")})
    data = json.loads(json_report.render([Checked(Report("c", None, (finding,)))]))
    assert data["findings"][0]["evidence"] == {"nan": "nan", "t": [1, 2], "p": "x"}


@pytest.mark.parametrize(
    ("pointer", "key"),
    [("/config/process/0/datasets/0", "datasets/0"), ("/model/qtype", "qtype"), ("/0", "/0"), ("", ""), (None, "")],
)
def test_an_entry_of_a_list_is_named_with_its_list(pointer: str | None, key: str) -> None:
    assert words.key(Finding("", Where("c", 1, 1, pointer))) == key
