"""Rules of other packages: found by their entry point, run like ours, and harmless when their package is broken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN = '''
from collections.abc import Iterator
from zdoctor.doctor.model import Finding, Fix, Run, found
from zdoctor.doctor.rules import repair, rule

@rule("XYZ001", "warning", "too-many-steps")
def too_many_steps(run: Run) -> Iterator[Finding]:
    """More steps than our lab allows.

    What: a limit of ours.
    Why: the queue.
    """
    if run.recipe.steps > 1000:
        message = "{steps} steps are more than 1000."
        yield found(run.where("steps"), message, otherwise="Others wait.", steps=run.recipe.steps)

@repair("XYZ001")
def ask_first(finding: Finding) -> Iterator[Fix]:
    yield Fix("ask the queue's owner", (), "show")
'''

ROOT = Path(__file__).parents[3]


def install(folder: Path, source: str) -> dict[str, str]:
    """A package with an entry point on the import path; returns the environment that sees it."""
    (folder / "lab_rules.py").write_text(source)
    info = folder / "lab_rules-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lab-rules\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[console_scripts]\nlab = lab:main\n\n[zdoctor.plugins]\nlab = lab_rules\n"
    )
    return {**os.environ, "PYTHONPATH": str(folder), "ZDOCTOR_STATE": str(folder / "state")}


def zdoctor(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "zdoctor", *words], cwd=ROOT, env=environment, capture_output=True, text=True
    )


def test_a_rule_from_elsewhere_is_one_of_ours(tmp_path: Path) -> None:
    environment = install(tmp_path, PLUGIN)
    assert "XYZ001  warning  fix  too-many-steps" in zdoctor(environment, "rules").stdout
    kaggle = ["examples/kaggle_zimage.yaml", "--machine", "examples/kaggle_t4x2.json"]
    shown = zdoctor(environment, "check", *kaggle, "--select", "XYZ001").stdout
    assert "2000 steps are more than 1000." in shown and "ask the queue's owner" in shown


@pytest.mark.parametrize("source", ["raise ImportError('half installed')", "def broken(:"])
def test_a_broken_package_does_not_stop_the_doctor(tmp_path: Path, source: str) -> None:
    done = zdoctor(install(tmp_path, source), "rules")
    assert done.returncode == 0 and "PTH001" in done.stdout
    assert "lab_rules" in done.stderr and "Traceback" not in done.stderr


def test_a_package_cannot_take_one_of_our_ids(tmp_path: Path) -> None:
    done = zdoctor(install(tmp_path, PLUGIN.replace("XYZ001", "PTH001")), "rules")
    assert done.returncode == 0 and "read-only-path" in done.stdout and "too-many-steps" not in done.stdout
    assert "PTH001 too-many-steps is declared twice" in done.stderr


FAMILY = """
from zdoctor.doctor.families import family_of
from zdoctor.doctor.model.record import replace

FAMILIES = [{family}]
"""


@pytest.mark.parametrize(
    ("family", "why"),
    [
        ("replace(family_of('zimage'), name='lab', aliases=(), title=None)", "its family 'lab' has no title"),
        ("replace(family_of('zimage'), aliases=())", "two model families are called 'zimage'"),
        ("type(family_of('zimage'))(name='lab')", "Family: missing: "),
        ("{'name': 'lab'}", "which is no Family"),
    ],
)
def test_a_family_with_a_hole_is_named_and_the_check_goes_on(tmp_path: Path, family: str, why: str) -> None:
    environment = install(tmp_path, FAMILY.format(family=family))
    done = zdoctor(environment, "check", "examples/kaggle_zimage.yaml", "--machine", "examples/kaggle_t4x2.json")
    assert done.returncode == 1 and "TRN002" in done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith("zdoctor: the rules of lab_rules are left out: ") and why in line


def test_a_family_from_elsewhere_is_known(tmp_path: Path) -> None:
    family = "replace(family_of('zimage'), name='lab_image', aliases=(), title='Lab Image')"
    environment = install(tmp_path, FAMILY.format(family=family))
    seen = "from zdoctor.doctor.rules import all_rules; all_rules(); from zdoctor.doctor.families import family_of"
    done = subprocess.run(
        [sys.executable, "-c", f"{seen}; print(family_of('lab_image').title)"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("Lab Image\n", "")


TRAINER = """
from zdoctor.doctor.configs.reading import Reading, tree_of, values_of
from zdoctor.doctor.configs.written import Written
from zdoctor.doctor.model import Run
from zdoctor.doctor.model.recipe import Recipe
from zdoctor.doctor.model.record import replace
from zdoctor.doctor.model.trainer import Trainer, any_of
from zdoctor.doctor.trainers import named

TRAINERS = [{trainer}]


def read(config, environment, beside):
    values = values_of(tree_of(config), config)
    w = Written({{pointer[1:]: value for pointer, value in values.items()}})
    recipe = Recipe(base_model=w.maybe("lab_model"), steps=w.whole("steps"))
    run = Run("Lab", config.path, "", 0, "lora", "lora", "lab", recipe, settings=w.settings)
    return Reading(replace(config, values=values), (run,))
"""
LAB = "Trainer(name={}, reader=__name__, marks=any_of('lab_model+steps'), in_logs='labtrain')"


def test_a_trainer_from_elsewhere_has_its_configs_read(tmp_path: Path) -> None:
    rule = PLUGIN.partition("@repair")[0].replace('"too-many-steps")', '"too-many-steps", trainers=("Lab",))')
    environment = install(tmp_path, TRAINER.format(trainer=LAB.format("'Lab'")) + rule)
    config = tmp_path / "lab.json"
    config.write_text('{"lab_model": "m", "steps": 2000}')
    for words in (("check", str(config)), ("check", str(config), "--trainer", "lab")):
        done = zdoctor(environment, *words, "--select", "XYZ001")
        assert "2000 steps are more than 1000." in done.stdout and done.stderr == "", done
    assert "choose from ai-toolkit, musubi-tuner, sd-scripts, SimpleTuner, Lab" in (
        zdoctor(environment, "check", str(config), "--trainer", "lob").stderr
    )


@pytest.mark.parametrize(
    ("trainer", "why"),
    [
        (LAB.format("'Lab'").replace("in_logs='labtrain'", "in_logs=None"), "its trainer 'Lab' has no in_logs"),
        (LAB.format("'musubi'"), "two trainers are called 'musubi'"),
        ("Trainer(name='Lab')", "Trainer: missing: "),
        ("replace(named('ai-toolkit'), name='')", "a trainer has no name"),
    ],
)
def test_a_trainer_with_a_hole_is_named_and_the_check_goes_on(tmp_path: Path, trainer: str, why: str) -> None:
    environment = install(tmp_path, TRAINER.format(trainer=trainer))
    done = zdoctor(environment, "check", "examples/kaggle_zimage.yaml", "--machine", "examples/kaggle_t4x2.json")
    assert done.returncode == 1 and "TRN002" in done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith("zdoctor: the rules of lab_rules are left out: ") and why in line


def test_two_packages_with_one_id_are_told_apart(tmp_path: Path) -> None:
    """The first by name stays; of the other one nothing is taken."""
    environment = install(tmp_path, PLUGIN)
    other = PLUGIN.replace("too-many-steps", "too-few-steps").replace("ask the queue", "ask nobody")
    (tmp_path / "rival_rules.py").write_text(other)
    declared = "[zdoctor.plugins]\nlab = lab_rules\nrival = rival_rules\n"
    (tmp_path / "lab_rules-1.0.dist-info" / "entry_points.txt").write_text(declared)
    done = zdoctor(environment, "rules")
    assert "XYZ001  warning  fix  too-many-steps" in done.stdout and "too-few-steps" not in done.stdout
    (line,) = done.stderr.splitlines()
    assert "rules of rival_rules are left out: XYZ001 too-few-steps is declared twice" in line
    kaggle = ["examples/kaggle_zimage.yaml", "--machine", "examples/kaggle_t4x2.json"]
    shown = zdoctor(environment, "check", *kaggle, "--select", "XYZ001").stdout
    assert "ask the queue" in shown and "ask nobody" not in shown


def test_a_package_that_alters_a_record_is_named_and_the_check_goes_on(tmp_path: Path) -> None:
    altering = PLUGIN.replace(
        "    if run.recipe.steps > 1000", "    run.settings['a'] = 1\n    if run.recipe.steps > 1000"
    )
    assert altering != PLUGIN
    environment = install(tmp_path, altering)
    kaggle = ["examples/kaggle_zimage.yaml", "--machine", "examples/kaggle_t4x2.json"]
    done = zdoctor(environment, "check", *kaggle, "--format", "json")
    report = json.loads(done.stdout)
    assert report["crashed"] == [{"rule": "XYZ001", "reason": "the plug-in lab_rules: RuleError: it alters run"}]
    assert {"TRN002"} <= {finding["rule"] for finding in report["findings"]} and done.returncode == 1
