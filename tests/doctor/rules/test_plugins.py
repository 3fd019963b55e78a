"""Rules of other packages: found by their entry point, run like ours, and harmless when their package is broken."""

from __future__ import annotations

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
