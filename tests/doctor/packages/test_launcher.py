"""The Python that a start script starts: those of shells are run for real, with a Python that says where it lies."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from zdoctor.doctor.packages.launcher import started

VENV = "venv\\Scripts\\python.exe"
BATCH = [
    ("cd /d %~dp0\ncall venv\\Scripts\\activate\npython run.py c.yaml\npause", VENV),
    ("call .\\venv\\Scripts\\activate.bat\naccelerate launch --num_cpu_threads_per_process 1 train_network.py", VENV),
    (".\\python_embeded\\python.exe -s run.py --listen", "python_embeded\\python.exe"),
    ("set PYTHON=D:\\py\\python.exe\n%PYTHON% run.py", "D:\\py\\python.exe"),
    ('set "PYTHON=%~dp0venv\\Scripts\\python.exe"\n"%PYTHON%" run.py', VENV),
    ('"C:\\AI Toolkit\\venv\\Scripts\\python.exe" run.py', "C:\\AI Toolkit\\venv\\Scripts\\python.exe"),
    ('set "PATH=%~dp0python_embeded;%PATH%"\ncd ai-toolkit\npython run.py', "python_embeded\\python.exe"),
    ("cd ai-toolkit\ncall venv\\Scripts\\activate\npython run.py", f"ai-toolkit\\{VENV}"),
    ("title AI Toolkit\nrem call venv\\Scripts\\activate\npython run.py", "python"),
    ('start "" /wait python run.py', "python"),
    ("call venv\\Scripts\\activate && python run.py", VENV),
    ("setlocal&&cd /d %~dp0\nvenv\\Scripts\\python.exe run.py", VENV),
    ("if exist venv call venv\\Scripts\\activate && python run.py", None),
    ("if exist venv (\n  call venv\\Scripts\\activate\n)\npython run.py", None),
    ("if not exist venv python -m venv venv\npython run.py", None),
    ("call conda activate kohya\npython run.py", None),
    ("%PYTHON% run.py", None),
    ("set PYTHON=%USERPROFILE%\\python.exe\n%PYTHON% run.py", None),
    ("pip install -r requirements.txt", None),
    ("echo python run.py", None),
    ("", None),
]


@pytest.mark.parametrize(("text", "python"), BATCH)
def test_what_a_batch_file_starts(text: str, python: str | None) -> None:
    assert started("@echo off\r\n" + text.replace("\n", "\r\n"), batch=True) == python


@pytest.mark.parametrize(
    ("text", "python"),
    [
        ('cd "$(dirname "$0")"\nsource venv/bin/activate\npython run.py "$@"', "venv/bin/python"),
        (". ./venv/bin/activate\npython run.py", "venv/bin/python"),
        ("./venv/bin/python run.py", "venv/bin/python"),
        ("source venv/bin/activate && python run.py", "venv/bin/python"),
        ("[ -d nowhere ] && source nowhere/bin/activate\npython run.py", None),
        ("exec venv/bin/python -u run.py", "venv/bin/python"),
        ('export PATH="venv/bin:$PATH"\npython run.py', "venv/bin/python"),
        ("PYTHON=venv/bin/python\n$PYTHON run.py", "venv/bin/python"),
        ("python run.py", "python"),
        ("if [ -d nowhere ]; then\n  source nowhere/bin/activate\nfi\npython run.py", None),
    ],
)
def test_what_a_shell_script_starts(text: str, python: str | None, tmp_path: Path) -> None:
    for folder in ("venv/bin", "system"):
        place = tmp_path / folder
        place.mkdir(parents=True)
        (place / "python").write_text(f"#!/bin/sh\necho {folder}/python\n")
        (place / "python").chmod(0o755)
    (tmp_path / "venv/bin/activate").write_text("PATH=$PWD/venv/bin:$PATH\n")
    (tmp_path / "start.sh").write_text(f"#!/bin/bash\n{text}\n")
    assert started((tmp_path / "start.sh").read_text(), batch=False) == python
    own = {**os.environ, "PATH": f"{tmp_path}/system:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "start.sh"], cwd=tmp_path, env=own, capture_output=True, text=True)
    expected = "venv/bin/python" if python and "/" in python else "system/python"
    assert done.stdout.strip() == expected, done.stderr
