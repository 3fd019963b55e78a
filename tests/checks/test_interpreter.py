"""PKG022, PKG023 on recorded machines (PKG013, PKG019: beside the environments): what is started, and from where."""

from __future__ import annotations

from typing import Any

import pytest

from zdoctor.checks import interpreter as rules
from zdoctor.doctor.model import Host, Schema
from zdoctor.doctor.model.environment import Environment
from zdoctor.doctor.probe.environment import probe_environment
from zdoctor.doctor.probe.recorded import RecordedWorld
from zdoctor.doctor.rules import NotApplicable
from zdoctor.tests.checks.config_cases import LINUX
from zdoctor.tests.machines import windows
from zdoctor.tests.models import run_of

ROOT, STUB = r"C:\ai-toolkit", r"C:\Users\mei\AppData\Local\Microsoft\WindowsApps"
ACTIVATED = "@echo off\r\ncall venv\\Scripts\\activate\r\npython run.py\r\n"


def found_in(script: str, path: str = "", files: dict[str, Any] | None = None) -> Environment:
    """A Windows desktop whose checkout has a venv, a portable Python and a start script."""
    machine = windows()
    machine["packages"] = {}
    for folder in ("venv", "python_embeded"):
        for name in ("torch-2.9.1", "oyaml-1.0", "lycoris_lora-1.8.3"):
            machine["files"][rf"{ROOT}\{folder}\Lib\site-packages\{name}.dist-info\METADATA"] = {"text": ""}
    machine["files"][rf"{ROOT}\venv\pyvenv.cfg"] = {"text": "home = C:\\Python312\nversion = 3.12.4\n"}
    machine["files"][r"C:\Python312\python.exe"] = {"size": 9}
    machine["files"][rf"{ROOT}\start.bat"] = {"text": script}
    machine["files"] |= files or {}
    machine["system"]["environment"]["PATH"] = path
    schema = Schema("ai-toolkit", "", "", {}, source=ROOT)
    found = probe_environment(RecordedWorld(machine), run_of("m"), schema)
    assert isinstance(found, Environment)
    return found


def test_the_environment_that_a_script_starts_comes_first() -> None:
    found = found_in("@echo off\r\n.\\python_embeded\\python.exe -s run.py\r\n")
    assert found.python == rf"{ROOT}\python_embeded\python.exe"
    assert found.found_by == rf"{ROOT}\start.bat starts it" and not found.past
    assert found_in(ACTIVATED).python == rf"{ROOT}\venv\Scripts\python.exe"
    for other in ("python ui.py\r\n", "if exist x python run.py\r\n"):
        assert "it lies in the checkout" in found_in(other).found_by


@pytest.mark.parametrize(
    ("path", "severity", "says"),
    [
        ("", None, "starts the python that PATH has, and not"),
        (r"C:\Windows;C:\Python312", None, r"starts C:\Python312\python.exe, which PATH has first"),
        (STUB, "error", "which only opens the Microsoft Store"),
        (rf"C:\Python312;{STUB}", None, r"starts C:\Python312\python.exe, which PATH has first"),
    ],
)
def test_a_script_that_starts_what_path_has(path: str, severity: str | None, says: str) -> None:
    stub = {rf"{STUB}\python.exe": {"size": 0}}
    [finding] = rules.script_past_its_environment(found_in("python run.py\r\n", path, stub))
    assert finding.severity == severity and says in finding.text()
    assert rf"{ROOT}\venv\Scripts\python.exe" in finding.text() and rf"{ROOT}\start.bat" in finding.text()
    with pytest.raises(NotApplicable):
        list(rules.script_past_its_environment(found_in(ACTIVATED, path, stub)))


def test_a_store_python_that_is_one_is_no_stub() -> None:
    store = {rf"{STUB}\python.exe": {"size": 100_000}}
    [finding] = rules.script_past_its_environment(found_in("python run.py\r\n", STUB, store))
    assert finding.severity is None


@pytest.mark.parametrize(
    ("filesystem", "told"),
    [
        *((name, True) for name in ("nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "fuse.rclone", "mapped drive")),
        *((name, False) for name in ("ext4", "NTFS", "overlay", "fuseblk", "fuse.mergerfs", "lustre", "9p", "")),
    ],
)
def test_an_environment_on_a_network_mount(filesystem: str, told: bool) -> None:
    environment = Environment("/home/me/venv/bin/python", {}, root="/home/me/venv", filesystem=filesystem)
    found = list(rules.environment_far_away(environment, Host(), LINUX))
    assert len(found) == told and all(f"network mount ({filesystem})" in one.text() for one in found)


def test_the_mount_of_an_environment_is_recorded() -> None:
    assert found_in(ACTIVATED).filesystem == "NTFS"


def test_an_environment_that_is_copied_into_a_cloud() -> None:
    environment = Environment("python", {}, root="/home/me/Cloud/venv")
    [finding] = rules.environment_far_away(environment, Host(synced=("/home/me/Cloud",)), LINUX)
    assert finding.severity == "warning" and "copied into a cloud" in finding.text()
    assert not list(rules.environment_far_away(environment, Host(synced=("/home/me/Clou",)), LINUX))
