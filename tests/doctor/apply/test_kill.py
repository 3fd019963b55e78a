"""A kill, a full disk and Ctrl-C at many a write: the world is then as before, or as after, never between.

`killed.py` with a stride of 1 tries every single one. Only what an extraction had finished stays beside its target,
and the next run goes on from there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the driver forks")


@pytest.mark.parametrize(
    "mode, stride", [("kill", 7), ("undo", 9), ("full", 12), ("interrupt", 12), ("recover", 12), ("second", 12)]
)
def test_at_every_so_many_points(tmp_path: Path, mode: str, stride: int) -> None:
    memory = Path("/dev/shm")  # thousands of forced writes: where there is a disk in memory, use it
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as folder:
        driver = Path(__file__).with_name("killed.py")
        command = [sys.executable, str(driver), str(Path(folder) / "w"), mode, str(stride)]
        run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    points, *broken = run.stdout.split("\n")
    assert int(points) > 30
    assert [line for line in broken if line] == []
