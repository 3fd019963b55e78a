"""The next line names the one thing that helps most."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from zdoctor.doctor.cli import main
from zdoctor.doctor.examine.engine import merge
from zdoctor.doctor.model import Finding, Report, Where
from zdoctor.doctor.model.record import replace
from zdoctor.reports import what_next

ROOT = Path(__file__).parents[2]


def error(rule: str, line: int | None) -> Finding:
    return Finding("m", None if line is None else Where("c.yaml", line), rule=rule, name="n", severity="error")


@pytest.mark.parametrize(
    ("rules", "named", "about"),
    [
        (["MEM003", "PTH004", "PTH004", "PTH004"], "PTH004", "is about 3 of the 4 errors"),
        (["MDL003", "MEM001", "CFG004"], "CFG004", "is about 1 of the 3 errors"),
        (["TRN009", "MEM003"], "TRN009", "is about 1 of the 2 errors"),
        (["MEM003"], "MEM003", ""),
    ],
)
def test_what_lies_nearest_to_the_cause_is_explained_first(rules: list[str], named: str, about: str) -> None:
    report = Report("c.yaml", "ai-toolkit", tuple(error(rule, line) for line, rule in enumerate(rules, 1)))
    assert what_next.next_steps(merge([report])) == [(f"zdoctor explain {named}", about)]


RUN, TRAIN = 'zdoctor run -- python run.py "a b.yaml"', 'zdoctor train "a b.yaml"'


@pytest.mark.parametrize(
    ("trainer", "trainable", "errors", "expected"),
    [
        ("ai-toolkit", True, [], [TRAIN, RUN]),
        ("ai-toolkit", False, [], [RUN]),
        ("SimpleTuner", True, [], [TRAIN, "zdoctor run -- COMMAND"]),
        (None, False, [], []),
        ("ai-toolkit", False, ["PTH004"], ["zdoctor explain PTH004"]),
    ],
)
def test_a_run_that_may_start_starts_by_either_trainer(
    trainer: str | None, trainable: bool, errors: list[str], expected: list[str]
) -> None:
    """After a repair by the user's own first."""
    report = Report("a b.yaml", trainer, tuple(error(rule, 1) for rule in errors), trainable=trainable)
    assert [command for command, _ in what_next.next_steps(report)] == expected
    assert [command for command, _ in what_next.next_steps(report, repaired=True)] == expected[::-1]


def test_what_a_recorded_machine_cannot_train_is_said_of_it() -> None:
    """`zdoctor train` would look at the machine that it runs on, and find nothing."""
    here = Report("c.yaml", "ai-toolkit", trainable=False, held_back=("PKG001",))
    assert what_next.own_trainer(here).endswith("(PKG001): zdoctor train c.yaml says why")
    there = what_next.own_trainer(replace(here, machine="a notebook"))
    assert there == "on that machine zdoctor's own trainer would not start (PKG001)"


def test_fix_leads_back_to_the_trainer_of_the_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZDOCTOR_STATE", str(tmp_path / "state"))
    shutil.copy(ROOT / "tests/configs/windows_escapes.yaml", "c.yaml")
    assert main(["fix", "c.yaml", "--select", "PTH002", "--apply"]) == 0
    said = capsys.readouterr().out
    assert "next: zdoctor run -- python run.py c.yaml" in said and "next: zdoctor train" not in said
