"""`zdoctor check --watch`, driven by a clock and by files of the test's own."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from zdoctor.doctor.cli import main
from zdoctor.doctor.commands import check, console
from zdoctor.doctor.commands.watch import Stamp, stamp, watch

ROOT = Path(__file__).parents[3]
MACHINE = str(ROOT / "examples" / "kaggle_t4x2.json")


def scripted(*steps: Callable[[], object]) -> Callable[[], None]:
    """A clock that does one step each time it is waited for, and is interrupted after the last."""
    left = iter(steps)

    def wait() -> None:
        step = next(left, None)
        if step is None:
            raise KeyboardInterrupt
        step()

    return wait


def test_it_looks_again_only_when_something_changed() -> None:
    files: dict[str, Stamp] = {"a": (1, 1), "b": None}
    looks: list[int] = []

    def look() -> list[str]:
        looks.append(len(looks))
        return list(files)

    watch(look, scripted(lambda: None, lambda: files.update(b=(2, 2)), lambda: None, lambda: None), files.__getitem__)
    assert len(looks) == 2


def test_what_changes_while_it_is_looked_at_is_looked_at_again() -> None:
    files: dict[str, Stamp] = {"a": (0, 0)}
    looks: list[Stamp] = []

    def look() -> list[str]:
        looks.append(files["a"])
        if len(looks) == 2:
            files["a"] = (9, 9)
        return ["a"]

    watch(look, scripted(lambda: files.update(a=(1, 1)), lambda: None), files.__getitem__)
    assert looks == [(0, 0), (1, 1), (9, 9)]


def test_files_that_come_and_go_are_seen(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    assert stamp(str(file)) is None and stamp("\0") is None
    file.write_text("x")
    assert stamp(str(file)) == (file.stat().st_mtime_ns, 1)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "examples" / "kaggle_zimage.yaml", "sick.yaml")
    yield tmp_path


def touched(file: str, text: str) -> Callable[[], None]:
    def write() -> None:
        Path(file).write_text(text)
        os.utime(file, ns=(1, 1))

    return write


def watched(monkeypatch: pytest.MonkeyPatch, *steps: Callable[[], object], words: tuple[str, ...] = ()) -> int:
    """`check --watch` on a terminal, with a clock that does these steps."""
    monkeypatch.setattr(console, "is_terminal", lambda: True)
    wait = scripted(*steps)
    monkeypatch.setattr(check, "watch", lambda look: watch(look, wait))
    return main(["check", "sick.yaml", "--machine", MACHINE, "--watch", *words])


def test_a_config_a_settings_file_and_a_named_file_are_watched(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = Path("sick.yaml").read_text()
    code = watched(
        monkeypatch,
        touched("sick.yaml", text.replace("steps: 2000", "stepps: 2000")),
        touched("zdoctor.toml", 'ignore = ["PTH"]'),
        touched("zdoctor.toml", 'ignor = ["PTH"]'),
        touched("zdoctor.toml", 'ignore = ["MDL"]'),
        lambda: None,
    )
    told = capsys.readouterr()
    assert code == 0
    assert told.out.count("zdoctor check sick.yaml\n") == 4
    assert "there is no setting 'ignor'" in told.err
    assert told.err.count("Ctrl-C ends it") == 5


def test_a_mistake_at_its_start_ends_it(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("zdoctor.toml").write_text("x = 1")
    assert watched(monkeypatch) == 2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "--watch draws on a terminal, and this is none."),
        (("--baseline", "b.json", "--write-baseline"), "A baseline is written once."),
    ],
)
def test_what_it_cannot_do_is_said(
    project: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], says: str
) -> None:
    assert main(["check", "sick.yaml", "--watch", *words]) == 2
    assert says in capsys.readouterr().err


def test_a_page_is_written_anew_without_a_terminal(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pages: list[str] = []
    write = touched("sick.yaml", "job: extension\nconfig: {}\n")
    wait = scripted(lambda: pages.append(Path("page.html").read_text()), write)
    monkeypatch.setattr(check, "watch", lambda look: watch(look, wait))
    assert main(["check", "sick.yaml", "--watch", "--format", "html", "-o", "page.html"]) == 0
    assert "folder_path" in pages[0] and "folder_path" not in Path("page.html").read_text()
    assert "\x1b" not in capsys.readouterr().out


def test_the_screen_is_cleared_only_where_that_is_known(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    console.clear()
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(console, "shows_color", lambda stream: stream is sys.stdout)
    console.clear()
    assert capsys.readouterr().out.endswith("\x1b[3J")
