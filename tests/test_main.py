"""Where the command starts: Ctrl-C while it still imports its own modules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tomlkit

ROOT = Path(__file__).parents[1]
# Presses Ctrl-C when the module of this name is about to be imported, for the first time.
PRESSES = """
import os, signal, sys

def press(event, what):
    if event == "import" and what[0] == os.environ.get("PRESS_AT"):
        del os.environ["PRESS_AT"]
        signal.raise_signal(signal.SIGINT)

sys.addaudithook(press)
"""
AS_SCRIPT = "import sys; from zdoctor.__main__ import main; sys.exit(main())"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signal between processes")
@pytest.mark.parametrize("start", [["-m", "zdoctor"], ["-c", AS_SCRIPT]], ids=["module", "script"])
@pytest.mark.parametrize("module", ["zdoctor.doctor", "zdoctor.doctor.cli", "argparse", "zdoctor.doctor.model.facts"])
def test_ctrl_c_during_the_imports_is_no_traceback(start: list[str], module: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(PRESSES)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PRESS_AT": module}
    done = subprocess.run([sys.executable, *start, "rules"], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "zdoctor: stopped. Nothing is half done.\n")


def test_the_command_starts_where_the_module_does() -> None:
    project = tomlkit.parse((ROOT / "pyproject.toml").read_text(encoding="utf-8")).unwrap()["project"]
    assert project["scripts"] == {"zdoctor": "zdoctor.__main__:main"}
