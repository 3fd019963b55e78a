"""The extension for VS Code, built and tested by npm as its README says. Where there is no npm, the test skips."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "editors" / "vscode"
UNREACHED = re.compile(r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENOTCACHED")


def test_it_is_built_and_shows_what_a_real_server_says(tmp_path: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("no npm here; on Debian: apt-get install npm")
    made = tmp_path / "vscode"
    shutil.copytree(FOLDER, made, ignore=shutil.ignore_patterns("node_modules", "out"))

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "ZDOCTOR_PYTHON": sys.executable}
        return subprocess.run(
            [npm, *words], cwd=made, env=environment, capture_output=True, text=True, timeout=300, encoding="utf-8"
        )

    got = run("ci", "--prefer-offline", "--no-audit", "--no-fund")
    if got.returncode and UNREACHED.search(got.stderr):
        pytest.skip("the npm registry cannot be reached")
    assert got.returncode == 0, got.stderr
    for step in (("run", "build"), ("test",)):
        done = run(*step)
        assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\bpass 2\b", done.stdout) and re.search(r"\bfail 0\b", done.stdout), done.stdout
