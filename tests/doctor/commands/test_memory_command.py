"""zdoctor memory: the phases against a card, the step rehearsed, and what makes a run fit."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from zdoctor.doctor.cli import main
from zdoctor.doctor.memory import GIB
from zdoctor.doctor.memory.fitting import SOLVED, fitting, largest, smallest_card
from zdoctor.doctor.memory.phases import highest_of
from zdoctor.doctor.memory.rehearsal import Question, question_of
from zdoctor.doctor.model import Unknown
from zdoctor.doctor.model.columns import cells
from zdoctor.doctor.model.memory import Rehearsed
from zdoctor.doctor.probe.rehearsal import rehearse
from zdoctor.tests import machines
from zdoctor.tests.doctor.memory.test_steps import placed_run

CONFIG = """job: extension
config:
  name: q
  process:
  - type: sd_trainer
    training_folder: /data/out
    device: cuda:0
    network: {type: lora, linear: 16, linear_alpha: 16}
    datasets: [{folder_path: /data/pictures, resolution: [512, 1024], cache_latents_to_disk: true}]
    train: {batch_size: 2, gradient_checkpointing: true, optimizer: adamw8bit, dtype: bf16}
    model: {name_or_path: Qwen/Qwen-Image, arch: qwen_image, quantize: true, quantize_te: true, low_vram: true}
    sample: {width: 1024, height: 1024, prompts: [a]}
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    file = tmp_path / "q.yaml"
    file.write_text(CONFIG)
    return str(file)


@pytest.fixture
def machine(tmp_path: Path) -> str:
    file = tmp_path / "machine.json"
    file.write_text(machines.text("a6000_shared"))
    return str(file)


def told(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    main(["memory", *words, "--format", "json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_run_is_held_against_the_card(
    config: str, machine: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["memory", config, "--machine", machine, "--no-rehearsal", "--solve", "rank"]
    assert main(words) == 1
    text = capsys.readouterr().out
    assert "training step" in text and "free here" in text and "was not rehearsed" in text
    assert "rank: no value fits" in text
    page = tmp_path / "m.html"
    assert main([*words, "--format", "html", "-o", str(page)]) == 1
    assert "<title>zdoctor memory" in page.read_text() and "training step" in page.read_text()


@pytest.mark.parametrize("language", ["en", "zh_CN", "zh_TW", "vi"])
def test_bars_begin_and_end_below_each_other_and_no_text_stays_english(
    language: str, config: str, machine: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["--lang", language, "memory", config, "--machine", machine, "--no-rehearsal", "--solve", "rank"]
    page = tmp_path / "m.html"
    assert main(words) == main([*words, "--format", "html", "-o", str(page)]) == 1
    text = capsys.readouterr().out
    phases = text.split("\n\n")[1]
    ends = {cells(re.sub(r" \S+ GiB$", "", line)) for line in phases.splitlines()[:-1]}
    assert len(ends) == 1 and len(phases.splitlines()) > 3
    for shown in (text, re.sub(r"<style>.*?</style>|<[^>]+>", "\n", page.read_text(), flags=re.DOTALL)):
        shown = re.sub(r"\(recorded.*?\)|（recorded.*?）", "", shown.replace(config, ""))
        left = re.findall(r"\b(?:of|is|are|it|to|the|was|at|that)\b[^\n]*|weights|settings\n|gradients", shown)
        assert bool(left) == (language == "en"), left


def test_the_smallest_card_that_would_do(config: str, machine: str, capsys: pytest.CaptureFixture[str]) -> None:
    (run,) = told(capsys, config, "--machine", machine, "--no-rehearsal")["runs"]
    assert run["smallest_card"] == smallest_card(run["high"]) >= run["high"] > run["free"]
    assert main(["memory", config, "--machine", machine, "--no-rehearsal"]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert f"the smallest usual card that holds it has {run['smallest_card'] // 10**9} GB." in shown


@pytest.mark.parametrize(
    ("peak", "size"), [(1, 6), (23_500_000_000, 24), (23_600_000_000, 32), (15_700_000_000, 20), (200_000_000_000, 0)]
)
def test_a_card_keeps_a_fiftieth_for_its_driver(peak: int, size: int) -> None:
    assert smallest_card(peak) == size * 10**9


def test_json_says_what_the_picture_says(config: str, machine: str, capsys: pytest.CaptureFixture[str]) -> None:
    (run,) = told(capsys, config, "--machine", machine, "--no-rehearsal")["runs"]
    sums = {phase["name"]: sum(phase["items"].values()) for phase in run["phases"]}
    assert max(sums.values()) == run["peak"] and run["low"] < run["peak"] < run["high"]
    assert run["rehearsed"] is False and run["not_rehearsed"]


def test_what_is_not_known_is_said(tmp_path: Path, machine: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "other.yaml"
    file.write_text(CONFIG.replace("arch: qwen_image", "arch: nucleus_image"))
    assert main(["memory", str(file), "--machine", machine]) == 3
    assert "not known: " in capsys.readouterr().out


def test_every_set_that_fits_is_smallest_and_harmless_ones_come_first() -> None:
    case = placed_run("zimage", 1024, batch_size=4, gradient_checkpointing=False).case
    written = replace(case.run, keys={**case.run.keys, "offload.low_vram": "model/low_vram"})
    case = replace(case, run=written)
    free = highest_of(case) - GIB
    found = fitting(case, free, 64 * GIB)
    assert found and all(one.high <= free for one in found)
    effects = [("none", "equivalent", "changes-result").index(one.effect) for one in found]
    assert effects == sorted(effects)
    sets = [{key for key, _ in one.settings} for one in found]
    assert not any(a < b for a in sets for b in sets)


@pytest.mark.parametrize("key", SOLVED)
def test_the_largest_value_fits_and_the_next_does_not(key: str) -> None:
    case = placed_run("zimage", 512, batch_size=8, gradient_checkpointing=False).case  # whose step is the peak
    free = highest_of(case) + GIB
    step, _, with_value = SOLVED[key]
    value = largest(case, key, free)
    assert value is not None
    assert highest_of(with_value(case, value)) <= free < highest_of(with_value(case, value + step))
    assert largest(case, key, GIB) is None


def test_a_step_is_rehearsed_in_a_process_of_its_own() -> None:
    question = question_of(placed_run("zimage", 512).case)
    assert isinstance(question, Question)
    found = rehearse(question, 300)
    assert isinstance(found, Rehearsed), found
    assert found.peak > found.static > GIB and sum(found.at_peak.values()) == found.peak


def test_a_rehearsal_that_is_late_or_fails_is_a_reason() -> None:
    question = question_of(placed_run("zimage", 512).case)
    assert isinstance(question, Question)
    for asked, deadline, words in ((question, 0.01, "did not end"), (replace(question, class_name="No"), 300, "No")):
        found = rehearse(asked, deadline)
        assert isinstance(found, Unknown) and words in found.reason
