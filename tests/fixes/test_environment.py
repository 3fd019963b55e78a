"""PKG007, PKG013, PKG018: a new environment beside the old one, made for real, started from, and taken back."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from zdoctor.doctor.apply import apply, undo
from zdoctor.doctor.model import Finding, Gpu, MakeEnvironment, Plan, Schema
from zdoctor.doctor.model.environment import Environment, Installed, Metadata, Requirement
from zdoctor.doctor.probe.environment import probe_environment
from zdoctor.doctor.probe.installed import probe_installed
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.fixes.environment import make_it_of_its_python_again, make_one_of_a_fitting_python
from zdoctor.tests.checks.config_cases import LINUX
from zdoctor.tests.environments import offline, put, venv, wheel
from zdoctor.tests.models import run_of

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
CARD = Gpu(0, "a card", 24 << 30, 23 << 30, (8, 9), "560.35", "recorded")


def test_where_its_python_is_gone_the_same_set_comes_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, wheels = tmp_path / "c", tmp_path / "w"
    for name, value in offline(wheels_of(wheels)).items():
        monkeypatch.setenv(name, value)
    python = venv(root / "venv")
    [site] = (root / "venv" / "lib").glob("python3.*/site-packages")
    put(site, *wheels.glob("*-1.0-*.whl"))
    python.unlink()
    python.symlink_to("/usr/lib/removed/bin/python3")
    world, schema = LiveWorld({}, cwd=str(root)), Schema("ai-toolkit", "", "", {}, source=str(root))
    environment = probe_environment(world, run_of("m"), schema)
    assert isinstance(environment, Environment) and environment.base_gone
    installed = probe_installed(world, run_of("m"), environment, schema)
    [fix] = make_it_of_its_python_again(Finding("x"), environment, installed, LINUX)
    [step] = fix.steps
    new = root / f"venv-py{HERE}"
    assert isinstance(step, MakeEnvironment) and step.path == str(new) and step.exact
    assert sorted(step.wanted) == ["numpy==1.0", "oyaml==1.0"] and step.modules == ("numpy",)
    done = apply(Plan("", (fix,)), state=tmp_path / "state")
    said = subprocess.run(
        [new / "bin" / "python", "-c", "import oyaml; print(oyaml.__version__)"], capture_output=True
    )
    assert said.stdout == b"1.0\n" and f"start the trainer with {new}/bin/python" in fix.title
    found = probe_environment(world, run_of("m"), schema)
    assert isinstance(found, Environment) and found.root == str(root / "venv")  # torch and others are in neither
    undo(done.id, state=tmp_path / "state")
    assert {path.name for path in root.iterdir()} == {"venv"} and python.is_symlink()


def wheels_of(folder: Path) -> Path:
    for name in ("numpy", "oyaml"):
        for version in ("1.0", "2.0"):
            wheel(folder, name, version)
    return folder


def test_where_a_package_came_from() -> None:
    """As pip freeze writes it; torch of PyTorch's index from there again."""
    commit, folder = "c943837899b16cbae2f619b8dd4f7bb6f07dd81a", "/v/lib/python3.11/site-packages"
    packages = (
        Metadata("diffusers", "0.36.0", folder, url="https://github.com/x/diffusers.git", commit=commit),
        Metadata("simpletuner", "4.0", folder, url="file:///home/a%20b/SimpleTuner"),
        Metadata(
            "flash_attn", "2.8.3", folder, url="https://x.invalid/flash_attn-2.8.3-cp311-cp311-linux_x86_64.whl"
        ),
        Metadata("torch", "2.9.1", folder),
        Metadata("torchvision", "0.24.1+cu128", folder),
        Metadata("pip", "25.0", folder),
        Metadata("rich", "14.0", "/elsewhere"),
    )
    versions = {one.name: one.version for one in packages} | {"torch": "2.9.1+cu128"}
    environment = Environment("/v/bin/python", versions, "3.11", (folder,), "/gone", root="/v", own=folder)
    installed = Installed(metadata={one.name: one for one in packages})
    [fix] = make_it_of_its_python_again(Finding("x"), environment, installed, LINUX)
    [step] = fix.steps
    assert isinstance(step, MakeEnvironment) and step.index == "https://download.pytorch.org/whl/cu128"
    assert step.first == ("torch==2.9.1+cu128", "torchvision==0.24.1+cu128")
    assert step.wanted == (
        f"diffusers @ git+https://github.com/x/diffusers.git@{commit}",
        "--editable=/home/a b/SimpleTuner",
        "flash-attn @ https://x.invalid/flash_attn-2.8.3-cp311-cp311-linux_x86_64.whl",
    )


@pytest.mark.parametrize(
    ("gpus", "first"),
    [
        ((CARD,), ("torch==2.9.1+cu128", "torchvision==0.24.1+cu128")),
        ((replace(CARD, driver="580.1"),), ("torch==2.9.1+cu130", "torchvision==0.24.1+cu130")),
        ((), ()),
    ],
)
def test_a_fitting_python_with_what_the_trainer_asks_for(gpus: tuple[Gpu, ...], first: tuple[str, ...]) -> None:
    asked = (Requirement("torch", "==2.9.1"), Requirement("scipy", "==1.12.0"), Requirement("oyaml"))
    environment = Environment("/v/bin/python", {"torch": "2.15.0+cu132"}, "3.15.0", root="/v", own="/v/lib")
    installed = Installed(requirements=asked, asked=3, nearest="3.12", without_wheel=asked[1:2])
    [fix] = make_one_of_a_fitting_python(Finding("x", rule="PKG018"), environment, installed, gpus, LINUX)
    [step] = fix.steps
    assert isinstance(step, MakeEnvironment) and (step.path, step.release) == ("/v-py3.12", "3.12")
    assert step.first == first and fix.safety == "ask"
    assert step.wanted == (("scipy==1.12.0", "oyaml") if first else ("torch==2.9.1", "scipy==1.12.0", "oyaml"))


def test_no_new_environment_for_another_finding_nor_for_a_python_of_the_system() -> None:
    installed = Installed(requirements=(Requirement("scipy", "==1.12.0"),), nearest="3.12")
    of_venv = Environment("p", {}, "3.13", root="/v")
    about_scipy = Finding("x", rule="PKG007", args={"package": "scipy"})
    assert not list(make_one_of_a_fitting_python(about_scipy, of_venv, installed, (), LINUX))
    about_python = Finding("x", rule="PKG007", args={"package": "python"})
    assert list(make_one_of_a_fitting_python(about_python, of_venv, installed, (), LINUX))
    assert not list(make_one_of_a_fitting_python(about_python, replace(of_venv, root=""), installed, (), LINUX))
