"""The demo's patient on a real file system: all seven families found, repaired, and taken back to the last byte."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from zdoctor.doctor.apply import undo
from zdoctor.doctor.cli import main
from zdoctor.doctor.commands.check import check
from zdoctor.doctor.commands.demo import FAMILIES, _delete, _inside, _model_folder, _on_cpu, _undo, walk
from zdoctor.doctor.commands.fix import fix
from zdoctor.doctor.commands.train import train
from zdoctor.doctor.demo.patient import COMMIT, Patient, _drop_tensors, build
from zdoctor.doctor.errors import INTERRUPTED, UserError

CACHED = f"models--Tongyi-MAI--Z-Image-Turbo/snapshots/{COMMIT}"
Tree = dict[str, tuple[int, str | None, bytes | None]]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Patient:
    return build(tmp_path_factory.mktemp("patient"))


@pytest.fixture
def patient(built: Patient, monkeypatch: pytest.MonkeyPatch) -> Iterator[Patient]:
    monkeypatch.chdir(built.folder)
    monkeypatch.setenv("HF_HOME", str(built.hub_home))
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    yield built


def tree(folder: Path) -> Tree:
    """Every path with its mode, link target and bytes."""
    found: Tree = {}
    for path in sorted(folder.rglob("*")):
        target = os.readlink(path) if path.is_symlink() else None
        content = path.read_bytes() if target is None and path.is_file() else None
        found[str(path.relative_to(folder))] = (path.lstat().st_mode, target, content)
    return found


def test_seven_families_found_repaired_and_taken_back(patient: Patient, own_state_folder: Path) -> None:
    config, machine = patient.config.name, patient.machine.name
    before = tree(patient.folder)
    sick = check(config, machine=machine)
    rules = {finding.rule for finding in sick.findings}
    for family, ids in FAMILIES.items():
        assert set(ids) <= rules, family
    fix(config, machine=machine)
    assert tree(patient.folder) == before, "looking changed something"

    safe = fix(config, machine=machine, apply=True)
    assert safe.after is not None and not safe.after.errors
    both = fix(config, machine=machine, apply=True, allow="changes-result")
    assert both.after is not None
    assert [f"{f.rule}: {f.text()}" for f in both.after.findings if f.severity != "note"] == []
    assert fix(config, machine=machine, allow="changes-result").plan.fixes == ()

    _on_cpu(patient.config).unlink()  # what the demo trains from leaves the config as it is, for undo
    undo(both.applied[0], state=own_state_folder)
    undo(safe.applied[0], state=own_state_folder)
    assert tree(patient.folder) == before


def test_training_is_refused_while_anything_is_red(patient: Patient) -> None:
    before = tree(patient.folder)
    with pytest.raises(UserError, match="not green"):
        train(patient.config.name)
    assert tree(patient.folder) == before


def test_the_demo_never_works_in_a_folder_that_holds_something(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(UserError, match="not an empty folder"):
        walk(str(tmp_path), main)
    with pytest.raises(UserError, match="not an empty folder"):
        walk(str(tmp_path / "mine.txt"), main)


def test_ctrl_c_in_one_of_its_commands_ends_the_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    called: list[str] = []

    def stopped(words: Sequence[str]) -> int:  # what the command line returns after Ctrl-C, having said so
        called.append(words[0])
        return INTERRUPTED

    assert walk(str(tmp_path / "de mo"), stopped) == INTERRUPTED and called == ["check"]
    command = capsys.readouterr().err.rpartition("to delete it: ")[2]
    assert shlex.split(command) == ["rm", "-r", str(tmp_path / "de mo")] and (tmp_path / "de mo").is_dir()


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="nothing tells what is mapped")
def test_no_file_is_replaced_while_it_is_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows refuses that."""
    shard, plain, mapped = tmp_path / "shard.safetensors", os.replace, []
    save_file({"a.weight": torch.ones(4096), "b.weight": torch.zeros(4096)}, str(shard))

    def replace(source: Path, target: Path) -> None:
        mapped.append(str(target) in Path("/proc/self/maps").read_text())
        plain(source, target)

    monkeypatch.setattr(os, "replace", replace)
    _drop_tensors(shard, "a.")
    assert load_file(str(shard)).keys() == {"b.weight"} and mapped == [False]


def test_its_commands_are_those_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shlex.split(_undo(Path("/a b"))) == ["ZDOCTOR_STATE=/a b/state", "zdoctor", "undo"]
    monkeypatch.setattr(sys, "platform", "win32")
    assert _undo(Path("/a b")) == 'cmd /c "set ZDOCTOR_STATE=/a b/state&& zdoctor undo"'
    assert _delete(Path("/a b")) == 'cmd /c rmdir /s "/a b"'


def test_whatever_happens_inside_the_place_and_the_environment_are_as_before(
    built: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", "/elsewhere")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("HF_HOME", raising=False)
    before, place = dict(os.environ), Path.cwd()
    with pytest.raises(KeyboardInterrupt), _inside(built):
        assert "HF_HUB_CACHE" not in os.environ and "HF_HUB_OFFLINE" not in os.environ
        assert Path.cwd() == built.folder
        raise KeyboardInterrupt
    assert (dict(os.environ), Path.cwd()) == (before, place)


def test_the_lora_is_tried_on_the_folder_it_was_trained_on(patient: Patient) -> None:
    """Also where the model stayed in the cache, because this machine's storage could not be looked at."""
    assert _model_folder(patient.config.name) == str(patient.hub_home / "hub" / CACHED)
