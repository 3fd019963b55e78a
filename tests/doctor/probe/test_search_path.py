"""The folders that a Python takes packages from, against what that Python says itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from zdoctor.doctor.probe.environment import of_folder
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.tests.environments import put, venv, wheel

TOLD = """import json, sys
from pathlib import Path
print(json.dumps([place for place in sys.path if list(Path(place).glob("*.dist-info"))]))"""
PYTHON = f"python{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.mark.parametrize("system", [False, True])
@pytest.mark.parametrize("names", [(), ("PYTHONPATH",), ("PYTHONUSERBASE",), ("PYTHONPATH", "PYTHONUSERBASE")])
@pytest.mark.parametrize("alone", [False, True])
def test_a_virtual_environment(system: bool, names: tuple[str, ...], alone: bool, tmp_path: Path) -> None:
    root, made = tmp_path / "venv", wheel(tmp_path, "alpha", "1.0")
    python = venv(root)
    if system:
        settings = root / "pyvenv.cfg"
        settings.write_text(settings.read_text().replace("packages = false", "packages = true"))
    places = {"PYTHONPATH": tmp_path / "more", "PYTHONUSERBASE": tmp_path / "user" / "lib" / PYTHON / "site-packages"}
    for place in (root / "lib" / PYTHON / "site-packages", *places.values()):
        put(place, made)
    values = {"PYTHONPATH": str(tmp_path / "more"), "PYTHONUSERBASE": str(tmp_path / "user")}
    variables = {"HOME": str(tmp_path), **{name: values[name] for name in names}}
    if alone:
        variables["PYTHONNOUSERSITE"] = "1"
    told = subprocess.run([python, "-c", TOLD], env=variables, capture_output=True, text=True, check=True).stdout
    found = of_folder(world(tmp_path, variables), str(root))
    assert found is not None and list(found.folders) == json.loads(told)
    assert found.own == str(root / "lib" / PYTHON / "site-packages") and "alpha" in found.versions


def world(folder: Path, variables: Mapping[str, str]) -> LiveWorld:
    made = LiveWorld(variables, cwd=str(folder))
    made.system = replace(made.system, home=str(folder))
    return made


@pytest.mark.parametrize(
    ("files", "release"),
    [
        (("python310.dll", "python3.dll", "python310._pth"), "3.10"),
        (("conda-meta/python-3.11.9-h8_1_cpython.json", "conda-meta/python-dateutil-2.9.0-py.json"), "3.11.9"),
        ((), ""),
    ],
)
def test_a_python_of_windows_says_its_release_by_its_files(
    files: tuple[str, ...], release: str, tmp_path: Path
) -> None:
    """A portable one, and one of conda."""
    place = tmp_path / "python"
    (place / "Lib" / "site-packages" / "alpha-1.0.dist-info").mkdir(parents=True)
    for name in files:
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).touch()

    class Windows(LiveWorld):
        """This machine, which says that it is another."""

    windows = Windows({}, cwd=str(tmp_path))
    windows.system = replace(windows.system, os="windows")
    windows.flavour = os.path
    found = of_folder(windows, str(place))
    assert found is not None and found.release == release and found.versions == {"alpha": "1.0"}
