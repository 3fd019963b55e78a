"""What consoles of other encodings, dumb terminals and notebooks show: no crash, no mark in place of a known sign."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from zdoctor.doctor.cli import main
from zdoctor.doctor.commands import console
from zdoctor.doctor.progress import Told, open_progress

ROOT = Path(__file__).parents[3]
CHECK = ("check", "examples/kaggle_zimage.yaml", "--machine", "examples/kaggle_t4x2.json", "-v")


class Cell(io.StringIO):
    """The stream of a notebook's cell: no terminal, and nothing to be reconfigured."""

    encoding = "UTF-8"

    def isatty(self) -> bool:
        return False


class Terminal(Cell):
    def isatty(self) -> bool:
        return True


def printed(encoding: str, tmp_path: Path, **variables: str) -> str:
    """What a console of that encoding is sent, as text."""
    path = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONIOENCODING": encoding, "ZDOCTOR_STATE": str(tmp_path)}
    words = [sys.executable, "-m", "zdoctor", *CHECK]
    done = subprocess.run(words, cwd=ROOT, env={**environment, **variables}, capture_output=True)
    assert done.returncode == 1 and done.stderr == b""
    return done.stdout.decode(encoding)


def test_every_encoding_says_the_same(tmp_path: Path) -> None:
    """As old consoles of Windows and a terminal without a locale have them; cp65001 is UTF-8."""
    whole = printed("utf-8", tmp_path, COLUMNS="100")
    assert "…" in whole and "·" in whole and "?" not in whole
    for encoding in ("cp65001", "cp1252", "cp437", "cp932", "ascii"):
        text = printed(encoding, tmp_path, COLUMNS="100")
        assert "?" not in text and "\ufffd" not in text, encoding
        assert text.count("PTH001") == whole.count("PTH001"), encoding
        assert all(len(line) <= 100 for line in text.splitlines() if line.startswith("error ")), encoding


def test_a_sign_that_is_not_there_becomes_one_that_is_like_it() -> None:
    assert "3 × a · b — c… → d’s 配".encode("ascii", console.PLAIN) == b"3 x a - b - c... -> d's ?"
    assert "a · b…".encode("cp437", console.PLAIN) == b"a \xfa b..."


@pytest.mark.parametrize(
    ("variables", "coloured"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False), ({"TERM": "dumb", "FORCE_COLOR": "1"}, True)],
)
@pytest.mark.skipif(sys.platform == "win32", reason="the console itself is asked there")
def test_colour_is_only_for_terminals_that_have_it(
    variables: dict[str, str], coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert console.color(Terminal()) == coloured


def test_a_cell_of_a_notebook_gets_plain_lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("ZDOCTOR_STATE", str(tmp_path))
    out, error = Cell(), Cell()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", error)
    assert main(CHECK) == 1
    assert "PTH001" in out.getvalue() and "\x1b" not in out.getvalue() and "\r" not in out.getvalue()
    assert error.getvalue() == ""
    told = open_progress()
    assert isinstance(told, Told) and not told.live
