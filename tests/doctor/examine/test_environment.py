"""The environment alone: which one is looked at, what is judged of it, and that no format stumbles over it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from zdoctor.doctor.examine.environment import examine_environment
from zdoctor.doctor.model import Report
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.rules import all_rules
from zdoctor.reports import FORMATS, Checked, render
from zdoctor.tests.doctor.schema.checkouts import AI_TOOLKIT, SD_SCRIPTS
from zdoctor.tests.doctor.schema.checkouts import checkout as small_checkout
from zdoctor.tests.environments import put, venv, wheel


def report_of(folder: Path, **variables: str) -> Report:
    return examine_environment(LiveWorld(variables, cwd=str(folder)), all_rules()).report


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of ai-toolkit's shape that lacks what its start imports."""
    root = tmp_path_factory.mktemp("checkout")
    small_checkout(root, AI_TOOLKIT)
    (root / "run.py").write_text("import oyaml\n")
    (root / "requirements.txt").write_text("oyaml\ntorch>=2\n")
    venv(root / "venv")
    put(next((root / "venv" / "lib").glob("python3.*")) / "site-packages", wheel(root / "w", "torch", "2.9.1"))
    return root


def test_the_checkout_at_hand_says_whose_environment_it_is(checkout: Path) -> None:
    report = report_of(checkout / "toolkit")
    assert report.trainer == "ai-toolkit" and report.config == ""
    assert report.python.startswith(f"{checkout}/venv/bin/python: Python 3.")
    assert report.python.endswith("torch 2.9.1, 1 packages (it lies in the checkout)")
    assert [(one.rule, one.args["package"]) for one in report.errors] == [("PKG006", "oyaml")]
    assert report.exit_code == 1 and not report.trainable


def test_of_two_checkouts_side_by_side_the_one_that_one_stands_in_counts(tmp_path: Path) -> None:
    """As in a folder with every trainer in it: ai-toolkit, which is asked for first, lies beside."""
    for name in ("ai-toolkit", "sd-scripts"):
        (tmp_path / name).mkdir()
    small_checkout(tmp_path / "ai-toolkit", AI_TOOLKIT)
    small_checkout(tmp_path / "sd-scripts", SD_SCRIPTS)
    assert report_of(tmp_path / "sd-scripts" / "library").trainer == "sd-scripts"
    assert report_of(tmp_path / "ai-toolkit").trainer == "ai-toolkit"
    assert report_of(tmp_path).trainer == "ai-toolkit"


def test_the_active_environment_counts_before_the_one_that_asks(checkout: Path, tmp_path: Path) -> None:
    report = report_of(tmp_path, VIRTUAL_ENV=str(checkout / "venv"))
    assert report.trainer is None and "active: VIRTUAL_ENV names it" in report.python
    assert sys.executable in report_of(tmp_path).python


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_tells_it(format: str, checkout: Path) -> None:
    seen = examine_environment(LiveWorld({}, cwd=str(checkout)), all_rules())
    text = render(format, [Checked(seen.report, seen.rules, seen.written)])
    assert "PKG006" in text and "oyaml" in text


def test_the_command_without_a_config(checkout: Path, tmp_path: Path) -> None:
    own = {**os.environ, "ZDOCTOR_STATE": str(tmp_path / "state"), "VIRTUAL_ENV": ""}
    command = [sys.executable, "-m", "zdoctor", "check"]
    done = subprocess.run(command, cwd=checkout, env=own, capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout.startswith("zdoctor check   ai-toolkit\n"), done.stderr
    assert not list((tmp_path / "state").rglob("*last*"))
    other = subprocess.run([*command[:-1], "fix"], cwd=checkout, env=own, capture_output=True, text=True)
    assert "zdoctor fix --select PKG006 --allow asked --apply" in other.stdout
