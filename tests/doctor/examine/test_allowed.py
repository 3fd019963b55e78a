"""A comment with a reason takes a finding out of the report and the exit code, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from zdoctor.doctor.examine.examination import examine_config
from zdoctor.doctor.model import Config, Report
from zdoctor.doctor.model.allowing import allow_comments
from zdoctor.doctor.probe.recorded import RecordedWorld
from zdoctor.reports import Checked, render
from zdoctor.tests.machines import load

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "examples" / "kaggle_zimage.yaml").read_text(encoding="utf-8")
FOLDER = "- folder_path: /kaggle/input/testarossa-dataset/testarossa-dataset"


def report(text: str) -> Report:
    return examine_config("config.yaml", RecordedWorld(load("kaggle_t4x2")), text=text.encode()).report


def rules(report: Report) -> list[str]:
    return [finding.rule for finding in report.findings]


PLAIN = report(TEXT)


@pytest.mark.parametrize(
    "text",
    [
        TEXT.replace(FOLDER, f"{FOLDER}  # zdoctor: allow PTH001 — a job copies it"),
        TEXT.replace(f"        {FOLDER}", f"        # zdoctor: allow PTH001: a job copies it\n        {FOLDER}"),
    ],
)
def test_what_is_allowed_is_held_apart(text: str) -> None:
    assert FOLDER in TEXT and "PTH001" in rules(PLAIN)
    told = report(text)
    assert [(one.finding.rule, one.reason) for one in told.allowed] == [("PTH001", "a job copies it")]
    assert len(told.findings) == len(PLAIN.findings) - 1 and "PTH001" not in told.passed
    assert "1 finding allowed" in render("text", [Checked(told)])
    assert "a job copies it" in render("text", [Checked(told)], verbose=True)
    assert json.loads(render("json", [Checked(told)]))["allowed"][0]["reason"] == "a job copies it"
    results = json.loads(render("sarif", [Checked(told)]))["runs"][0]["results"]
    assert [r["suppressions"][0]["justification"] for r in results if "suppressions" in r] == ["a job copies it"]


def test_only_errors_that_are_left_count() -> None:
    """With all errors allowed the exit code is 0."""
    text = TEXT.replace(FOLDER, f"{FOLDER}  # zdoctor: allow PTH001 — copied")
    path = "name_or_path: /kaggle/working/Z-Image-Turbo-HF"
    told = report(text.replace(path, f"{path}  # zdoctor: allow MDL003, MDL009 — made by the job before"))
    assert path in TEXT and told.exit_code == 0 and not told.errors


@pytest.mark.parametrize(
    ("comment", "said"),
    [
        ("# zdoctor: allow PTH001", "without a reason"),
        ("# zdoctor: allow PTH009 — no such rule", "PTH009 finds nothing"),
        ("# zdoctor: allow PTH001 PTH003 — it is so", "PTH003 finds nothing"),
    ],
)
def test_a_comment_that_allows_nothing_is_said(comment: str, said: str) -> None:
    told = report(TEXT.replace(FOLDER, f"{FOLDER}  {comment}"))
    idle = [finding for finding in told.findings if finding.rule == "CFG006"]
    assert len(idle) == 1 and said in idle[0].text() and "CFG006" not in told.passed


def test_what_has_no_answer_here_may_be_needed_elsewhere() -> None:
    assert "MEM001" in {outcome.rule for outcome in PLAIN.unknown}
    told = report(TEXT.replace(FOLDER, f"{FOLDER}  # zdoctor: allow MEM001 — the other machine is larger"))
    assert rules(told) == rules(PLAIN)


@pytest.mark.parametrize(
    ("text", "about"),
    [
        ("a: 1 # zdoctor: allow PTH001 — x", [1]),
        ("# zdoctor: allow PTH001 — x\n\n# zdoctor: allow PTH002 — y\na: 1", [4, 4]),
        ("// zdoctor: allow PTH001, CFG002 — x\n{}", [2]),
        ("rem zdoctor: allow PTH001 x\npython a.py", [2]),
        ("# zdoctor: allow PTH001 — x", [1]),
        ("# zdoctor: allows PTH001 — x\n# zdoctor allow PTH001", []),
    ],
)
def test_which_line_a_comment_is_about(text: str, about: list[int]) -> None:
    assert [comment.about for comment in allow_comments(Config("c.yaml", text, None))] == about
