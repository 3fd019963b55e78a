"""What a terminal and a log show of long work."""

from __future__ import annotations

import io
import threading

import pytest

from zdoctor.doctor import progress
from zdoctor.doctor.model.columns import cells
from zdoctor.doctor.progress import Told, open_progress


class Heard(io.StringIO):
    """A stream that somebody can wait at for so many writes."""

    def __init__(self, *, terminal: bool, wanted: int = 1) -> None:
        super().__init__()
        self.terminal, self.wanted = terminal, wanted
        self.enough = threading.Event()

    def isatty(self) -> bool:
        return self.terminal

    def write(self, text: str) -> int:
        self.wanted -= 1
        if self.wanted <= 0:
            self.enough.set()
        return super().write(text)


class Gone(io.StringIO):
    """A pipe whose reader has gone away."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


def on_screen(text: str) -> list[str]:
    """The lines that a terminal shows in the end: a carriage return goes to the beginning of the line."""
    lines = []
    for line in text.split("\n"):
        shown = ""
        for part in line.split("\r"):
            shown = part + shown[len(part) :]
        lines.append(shown.rstrip())
    return lines


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRST", "LINE", "LONGEST"):
        monkeypatch.setattr(progress, name, 0.0)
    monkeypatch.setattr(progress, "DRAW", 0.001)


@pytest.mark.usefixtures("at_once")
def test_work_that_tells_nothing_of_itself_is_told_on_a_terminal() -> None:
    stream = Heard(terminal=True, wanted=5)
    with open_progress(stream) as told:
        told.phase("Loading the transformer")
        assert stream.enough.wait(60)
        told.note("a note between")
        told.doing("hashing")
    assert on_screen(stream.getvalue()) == ["Loading the transformer", "note: a note between", ""]
    assert " s\r" in stream.getvalue() or " s " in stream.getvalue()


@pytest.mark.usefixtures("at_once")
def test_a_log_gets_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Heard(terminal=False, wanted=4)
    with open_progress(stream) as told:
        told.phase("Encoding")
        told.count(3, 8, "pictures encoded")
        assert stream.enough.wait(60)
    lines = stream.getvalue().split("\n")
    assert lines[:2] == ["Encoding", "  3 of 8 pictures encoded, 0 s so far"]
    assert lines[-1] == "" and "\r" not in stream.getvalue()


def test_what_takes_no_time_is_not_told() -> None:
    for terminal in (True, False):
        stream = Heard(terminal=terminal)
        with open_progress(stream) as told:
            told.doing("checking config.yaml")
            told.bytes_done(3, 4, "a/b/c")
        assert stream.getvalue() == ""


@pytest.mark.parametrize("columns", [20, 40, 60, 100])
def test_a_row_never_wraps_and_cuts_off_no_number(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    told = Told(io.StringIO(), live=True)
    told.step(1234, 3000, 0.4321, 0.42)
    told._draw(0.0)
    told.close()
    row = told.stream.getvalue().split("\r")[1]  # type: ignore[attr-defined]
    assert len(row) < columns
    assert "1234/3000" in row and (columns < 40 or ("loss 0.4321" in row and "2.4 s/it" in row))
    assert columns < 60 or "1:10:05 left" in row


def test_a_row_of_wide_characters_never_wraps_and_is_wiped_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    told = Told(io.StringIO(), live=True)
    told.doing("正在检查模型文件" * 4)
    told._draw(0.0)
    told.close()
    _, row, wiped, _ = told.stream.getvalue().split("\r")  # type: ignore[attr-defined]
    assert 38 <= cells(row) < 40 and cells(row) == len(wiped) and not wiped.strip()


def test_bytes_are_told_with_their_speed_and_what_is_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(io.StringIO(), live=False)
    monkeypatch.setattr("zdoctor.doctor.progress.time.monotonic", lambda: told.moved + 2.0)
    told.total = 4_000_000_000
    told.bytes_done(1_000_000_000, 4_000_000_000, r"C:\hub\transformer\model-1.safetensors")
    assert told.text == " 25%  1 GB of 4 GB, 500 MB/s  6 s left  transformer/model-1.safetensors"
    told.bytes_done(0, 0, "asking whether the hub can be reached")
    assert told.text == "asking whether the hub can be reached"
    told.close()


def test_a_dumb_terminal_is_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    told = open_progress(Heard(terminal=True))
    assert isinstance(told, Told) and not told.live


def test_a_reader_who_has_gone_ends_no_work() -> None:
    with open_progress(Gone()) as told:
        told.phase("Encoding")
        told.note("a note")
