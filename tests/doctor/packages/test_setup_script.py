"""A setup.py read by its syntax tree says what it hands to setup() when it runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from zdoctor.doctor.packages.requirements import of_project
from zdoctor.doctor.packages.setup_script import declared

SCRIPT = '''
import os
from setuptools import setup

TORCH = ["torch>=2.11.0", "torchvision>=0.26.0"]
AO = "torchao>=0.17.0,<0.18.0"


def cuda():
    """For NVIDIA."""
    return [*TORCH, AO, "bitsandbytes>=0.45.0"]


def rocm():
    return [*TORCH, AO]


def nightly():
    return ["torch==" + os.environ.get("NIGHTLY", "2.12")]


BY_PLATFORM = {"cuda": cuda(), "rocm": rocm()}
base = ["diffusers>=0.36.0", "fastapi[standard]>=0.115.0", "imageio[pyav] @ https://example.invalid/imageio.zip"]
extras = {
    "cuda": list(BY_PLATFORM["cuda"]),
    "rocm": rocm(),
    "te": ["transformer_engine[pytorch]>=2.16.0"],
    "dev": ["black>=23.0.0"] + ["flake8"],
}
if "sdist" not in os.sys.argv:
    extras["nightly"] = nightly()
setup(name="x", python_requires=">=3.12,<3.14", install_requires=base + TORCH[:0], extras_require=extras)
'''
RUN = """
import json, runpy, sys, types
told = {}
sys.modules["setuptools"] = types.SimpleNamespace(setup=lambda **given: told.update(given))
runpy.run_path(sys.argv[1])
print(json.dumps(told))
"""


def test_it_reads_what_the_script_says_when_it_runs(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text(SCRIPT)
    command = [sys.executable, "-c", RUN, str(tmp_path / "setup.py")]
    told = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    read = declared(SCRIPT)
    assert read["dependencies"] == told["install_requires"]
    assert read["requires-python"] == told["python_requires"]
    del told["extras_require"]["nightly"]  # made by statements, which nobody follows
    assert read["optional-dependencies"] == told["extras_require"]


def test_extras_that_bring_torch_are_kinds_of_machine() -> None:
    sets = of_project(declared(SCRIPT), "setup.py", SCRIPT)
    names = [[one.name for one in asked.requirements] for asked in sets]
    base = ["python", "diffusers", "fastapi", "imageio", "torch", "torchvision", "torchao"]
    assert names == [[*base, "bitsandbytes"], base]
    line = {one.name: one.where.line if one.where else 0 for one in sets[0].requirements}
    assert (line["torch"], line["torchao"], line["python"]) == (5, 6, 32)


@pytest.mark.parametrize(
    ("script", "lines"),
    [
        ("from setuptools import setup\nsetup(install_requires=open('r.txt').read().split())\n", []),
        ("import setuptools\nsetuptools.setup(install_requires=('a', 'b>1'))\n", ["a", "b>1"]),
        ("from setuptools import setup\na = a2\na2 = a\nsetup(install_requires=a)\n", []),
        ("from setuptools import setup\ndef f():\n    return f()\nsetup(install_requires=f())\n", []),
    ],
)
def test_what_only_the_running_script_knows_is_left_out(script: str, lines: list[str]) -> None:
    assert declared(script)["dependencies"] == lines


@pytest.mark.parametrize("script", ["", "setup(", "x = 1\n", "\0"])
def test_no_setup_script(script: str) -> None:
    assert declared(script) == {}
