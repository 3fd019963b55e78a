"""The state folder: where it is, and which config a directory was last checked with."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from zdoctor.doctor import state
from zdoctor.doctor.cli import main

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ZDOCTOR_STATE", str(tmp_path / "state"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "state"


def test_it_lies_in_the_users_own_place(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    assert state.state_folder() == folder
    monkeypatch.delenv("ZDOCTOR_STATE")
    monkeypatch.setenv("XDG_STATE_HOME", "/elsewhere")
    if os.name == "posix" and os.uname().sysname == "Linux":
        assert state.state_folder() == Path("/elsewhere/zdoctor")
    assert state.state_folder().is_absolute()


def test_each_directory_has_its_own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert state.recall() is None
    Path("a.yaml").touch()
    state.remember("a.yaml")
    assert state.recall() == "a.yaml"
    assert [p.name for p in tmp_path.joinpath("work").iterdir()] == ["a.yaml"]
    monkeypatch.chdir(tmp_path)
    assert state.recall() is None


def test_a_config_that_is_gone_is_not_recalled() -> None:
    state.remember("a.yaml")
    assert state.recall() is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 1}', "\udcff"])
def test_a_damaged_memory_is_no_memory(folder: Path, text: str) -> None:
    folder.mkdir()
    (folder / "configs.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert state.recall() is None
    Path("a.yaml").touch()
    state.remember("a.yaml")
    assert state.recall() == "a.yaml"


def test_a_state_folder_that_cannot_be_written_stops_nothing(folder: Path) -> None:
    folder.write_text("a file")
    state.remember("a.yaml")
    assert state.recall() is None


def test_the_memory_is_bounded(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "REMEMBERED", 3)
    for name in "abcde":
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        Path("x.yaml").touch()
        state.remember("x.yaml")
    assert state.recall() == "x.yaml"
    assert (folder / "configs.json").read_text().count("x.yaml") == 3


def test_what_is_no_config_of_any_trainer_is_not_remembered(capsys: pytest.CaptureFixture[str]) -> None:
    """A picture that was named by a slip must not be what the next `zdoctor check` looks at."""
    shutil.copy(ROOT / "tests/configs/windows_escapes.yaml", "sick.yaml")
    main(["check", "sick.yaml"])
    for name, data in (
        ("picture.png", b"\x89PNG\r\n\0\0"),
        ("drawing.svg", b"<svg></svg>"),
        ("own.json", b'{"a": 1}'),
    ):
        Path(name).write_bytes(data)
        for command in ("check", "fix"):
            main([command, name])
            assert state.recall() == "sick.yaml"


@pytest.mark.parametrize("command", [["fix", "sick.yaml", "--apply"], ["undo"], ["history"]])
def test_a_home_that_cannot_be_written_names_the_way_out(
    command: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.write_text("a file")
    shutil.copy(ROOT / "tests/configs/windows_escapes.yaml", "sick.yaml")
    assert main(command) == 2
    assert "The environment variable ZDOCTOR_STATE names another state folder." in capsys.readouterr().err
    assert Path("sick.yaml").read_bytes() == (ROOT / "tests/configs/windows_escapes.yaml").read_bytes()
