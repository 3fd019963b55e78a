"""One error of the text hides no other: what stands behind it is looked at as it was meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from zdoctor.doctor.examine.engine import prescribe
from zdoctor.doctor.examine.examination import Examination, examine_config
from zdoctor.doctor.model import ReplaceText, SetValue
from zdoctor.doctor.probe.recorded import RecordedWorld
from zdoctor.tests.machines import load

ROOT = Path(__file__).parents[3]
HEALTHY = (ROOT / "tests" / "configs" / "server_healthy.yaml").read_text(encoding="utf-8")


def look(*edits: tuple[str, str]) -> Examination:
    text = HEALTHY
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return examine_config("config.yaml", RecordedWorld(load("healthy")), text=text.encode())


# what is written, and the rules that speak of it, with a word that they say
HIDDEN: dict[str, tuple[list[tuple[str, str]], list[tuple[str, str]]]] = {
    "below a section": (
        [("      network:", "      netwrok:"), ("linear: 16\n", "linear: sixteen\n")],
        [("CFG002", "netwrok"), ("CFG004", "sixteen")],
    ),
    "of the datasets": (
        [("      datasets:", "      dataset:"), ("folder_path: /data/faces", "folder_path: /data/face")],
        [("CFG002", "dataset"), ("PTH004", "/data/face")],
    ),
    "of a family": (
        [('arch: "zimage:turbo"', 'arch: "zimgae:turbo"'), ("guidance_scale: 1", "guidance_scale: 4")],
        [("CFG004", "zimgae"), ("TRN005", "guidance")],
    ),
    "behind a quote": (
        [
            ("trigger_word: bob", 'trigger_word: "bob'),
            ("        linear: 16\n", "        linear: 16\n        linear: 8\n"),
        ],
        [("CFG001", "quote"), ("CFG005", "linear")],
    ),
    "behind two": (
        [
            ("trigger_word: bob", 'trigger_word: "bob'),
            ("        linear: 16\n", "      \tlinear: 16\n"),
            ("steps: 2000", "steps: many"),
        ],
        [("CFG001", "quote"), ("CFG001", "\\t"), ("CFG004", "many")],
    ),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_what_stands_behind_an_error_is_found(name: str) -> None:
    edits, said = HIDDEN[name]
    report = look(*edits).report
    for rule, word in said:
        assert any(one.rule == rule and word in one.text() for one in report.findings), (rule, word)
    assert not report.crashed


def test_what_the_slip_alone_leads_to_is_as_the_file_reads() -> None:
    """The corrected text is looked at beside the one that is there, never in its place."""
    slip = [("      network:", "      netwrok:")]
    seen = look(*slip)
    assert seen.reading.config.text == HEALTHY.replace(*slip[0]) == seen.written.text
    assert [run.kind for run in seen.reading.runs] == ["finetune"]


def test_no_repair_is_offered_of_a_text_that_is_not_there() -> None:
    """A value below a misspelt section has another place in the file: its repair waits for that of the section."""
    edits = [("      network:", "      netwrok:"), ("linear: 16\n", 'linear: "16"\n'), ("lr: 1e-4", 'lr: "1e-4 "')]
    report = look(*edits).report
    held = {one.evidence.get("key"): one for one in report.findings if one.rule == "CFG004"}
    assert "network/linear" in held and not held["network/linear"].fixes
    steps = [step for fix in prescribe(report, allow="changes-result", asked=True).fixes for step in fix.steps]
    assert not [step for step in steps if isinstance(step, SetValue) and "network" in step.pointer]
    assert [step.new for step in steps if isinstance(step, ReplaceText)] == ["network"]


def test_where_nothing_can_be_put_right_it_is_said() -> None:
    report = look(("resolution: [512, 768]", "resolution: [512, 768"), ("lr: 1e-4", "lr: small")).report
    assert [one.rule for one in report.findings] == ["CFG001"]
    assert {"settings", "datasets", "model files"} <= {one.what for one in report.not_judged}


def test_no_slip_no_second_look() -> None:
    assert look().report.findings == () and look().report.ok
