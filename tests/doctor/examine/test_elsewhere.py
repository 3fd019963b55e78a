"""A config of another machine, or one that is looked at from another folder, is no sick one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from zdoctor import check
from zdoctor.doctor.cli import main
from zdoctor.doctor.commands.examined import examined
from zdoctor.doctor.model import Report
from zdoctor.doctor.model.findings import HERE
from zdoctor.reports.what_next import next_steps
from zdoctor.reports.words import about
from zdoctor.tests.doctor.schema.checkouts import AI_TOOLKIT, checkout

JOB = """job: extension
config:
  name: a
  process:
    - type: sd_trainer
      training_folder: {out}
      network: {{type: lora, linear: 16, linear_alpha: 16}}
      datasets: [{{folder_path: "{data}", caption_ext: txt, resolution: [512]}}]
      train: {{steps: 100, lr: 0.0001, batch_size: 1, dtype: bf16}}
      model: {{name_or_path: "{model}", arch: zimage}}
"""
OF_THIS_MACHINE = {"memory", "graphics card", "this computer", "disk space"}
ABSENT = "/zdoctor-nowhere" if os.name != "nt" else "/workspace"
elsewhere = pytest.mark.parametrize(
    "root", [ABSENT, "/home/zdoctor-somebody", "Z:\\\\train" if os.name != "nt" else "Q:/train"]
)


def seen(folder: Path, data: str, model: str = "Tongyi-MAI/Z-Image", out: str = "output") -> Report:
    config = folder / "job.yaml"
    config.write_text(JOB.format(data=data, model=model, out=out))
    return check(str(config))


def told(report: Report, rule: str = "PTH004") -> list[str | None]:
    return [finding.severity for finding in report.findings if finding.rule == rule]


@elsewhere
def test_what_another_machine_has_is_not_missing(root: str, tmp_path: Path) -> None:
    report = seen(tmp_path, f"{root}/data", f"{root}/model", f"{root}/out")
    assert not report.errors and told(report) == ["warning"] * 2
    gaps = {gap.what: gap.reason for gap in report.not_judged}
    assert gaps.keys() >= OF_THIS_MACHINE and "is for another one" in gaps["memory"]
    assert not report.judged or OF_THIS_MACHINE.isdisjoint(report.judged)
    assert about(report) == [gaps["memory"]]  # told once, at the top of each kind of report
    assert [command.split()[:2] for command, _ in next_steps(report)] == [["zdoctor", "check"]] * 2  # there


def test_this_machine_may_be_named_as_the_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By --machine here, and by what is about this machine alone: `run`, and `memory`, which measures its card."""
    assert not seen(tmp_path, f"{ABSENT}/data").errors
    config = str(tmp_path / "job.yaml")
    assert told(examined(config, machine=HERE).report) == ["error"]
    assert main(["memory", config, "--no-rehearsal", "--format", "json"]) != 3
    assert json.loads(capsys.readouterr().out)["runs"][0]["phases"]


def test_a_path_that_is_wrong_on_this_machine_is(tmp_path: Path) -> None:
    assert told(seen(tmp_path, f"{tmp_path.as_posix()}/dta")) == ["error"]
    assert told(seen(tmp_path, "/path/to/images")) == ["error"]  # it is so anywhere
    here = tmp_path / "data"
    here.mkdir()
    assert told(seen(tmp_path, here.as_posix(), f"{ABSENT}/model")) == ["error"]  # the data are here


def test_with_the_trainer_at_hand_it_is_this_machine(tmp_path: Path) -> None:
    checkout(tmp_path, AI_TOOLKIT)
    assert told(seen(tmp_path, f"{ABSENT}/data")) == ["error"]


def test_a_relative_path_may_be_meant_from_a_folder_above(tmp_path: Path) -> None:
    (tmp_path / "data" / "faces").mkdir(parents=True)
    (tmp_path / "configs").mkdir()
    assert told(seen(tmp_path / "configs", "data/faces")) == ["warning"]
    assert told(seen(tmp_path / "configs", "data/face")) == ["error"]


SCRIPT = "accelerate launch flux_train_network.py --sdpa --network_module networks.lora_flux --output_dir {0}/out "
SCRIPT += "--pretrained_model_name_or_path {0}/m.sft --clip_l {0}/c.sft --t5xxl {0}/t.sft --ae {0}/a.sft "
SCRIPT += "--dataset_config {0}/data.toml --mixed_precision bf16 --optimizer_type AdamW8bit"


@elsewhere
def test_a_script_of_another_machine(root: str, tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(SCRIPT.format(root.replace("\\\\", "/")))
    report = check(str(script))
    assert not report.errors
    assert told(report, "KOH001") == ["warning"] * 4 and told(report, "KOH012") == ["warning"]
    script.write_text(SCRIPT.format(tmp_path.as_posix()))
    report = check(str(script))
    assert told(report, "KOH001") == ["error"] * 4 and told(report, "KOH012") == ["error"]
