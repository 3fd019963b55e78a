"""The tables of known failures: what is wrong in one is said, and an installed zdoctor has them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from zdoctor.doctor.crash import table
from zdoctor.doctor.errors import UserError
from zdoctor.doctor.model.crashes import Known

ROOT = Path(__file__).parents[3]
HEAD = "about: A subject.\nread_in: a library 1.0\nfailures:\n"
ENTRY = """\
- error: ValueError
  text: ['a\\d', b]
  words: [it is a1, b]
  cause: >-
    A cause
    over two lines.
  do: &it Do this.
  avoid: *it
  messenger: true
  least: 2
  source: https://example.org
"""


def file_of(folder: Path, text: str) -> Path:
    file = folder / "table.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_table_is_read(tmp_path: Path) -> None:
    (known,) = table.read(file_of(tmp_path, HEAD + ENTRY))
    assert known == Known(
        "A cause over two lines.",
        "Do this.",
        "Do this.",
        error="ValueError",
        text=r"a\d|b",
        words=("it is a1", "b"),
        messenger=True,
        least=2,
        source="https://example.org",
    )


@pytest.mark.parametrize(
    ("old", "new", "line", "told"),
    [
        ("about:", "abuot:", 1, "'abuot' is no field; there are about, failures, read_in"),
        ("read_in: a library 1.0\n", "", 1, "read_in is missing"),
        ("- error:", "  error:", 4, "failures is no list"),
        ("words:", "wrods:", 6, "'wrods' is no field"),
        ("  least: 2\n", "  least: 2\n  least: 2\n", 14, "least stands twice"),
        ("  source: https://example.org\n", "", 4, "the failure 'A cause over two lines.' has no source"),
        ("[it is a1, b]", "it is a1", 6, "a list belongs here"),
        ("[it is a1, b]", "[]", 6, "a list belongs here"),
        ("'a\\d'", "'(a'", 4, "'A cause over two lines.' has a pattern that is none: missing )"),
        ("Do this.", "", 10, "a text belongs here"),
        ("Do this.", "{a: b}", 10, "a text belongs here"),
        ("true", "yes", 12, "true belongs here, or nothing at all"),
        ("least: 2", "least: two", 13, "a number belongs here"),
        ("*it", "*that", 11, "found undefined alias"),
        ("- error", "- [error", 5, "did not find expected"),
    ],
)
def test_what_is_wrong_in_a_table_is_said_with_its_place(
    old: str, new: str, line: int, told: str, tmp_path: Path
) -> None:
    assert old in HEAD + ENTRY
    file = file_of(tmp_path, (HEAD + ENTRY).replace(old, new))
    with pytest.raises(UserError) as error:
        table.read(file)
    assert str(error.value).startswith(f"{file}, line {line}: ") and told in str(error.value)


def test_a_failure_is_recognised_by_something(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"line 4: the failure 'c' has none of error, text, words, line"):
        table.read(file_of(tmp_path, f"{HEAD}- cause: c\n  do: d\n  source: https://example.org\n"))


@pytest.mark.parametrize("text", ["", "[]", "a text", "\x00"])
def test_what_is_no_table_is_said(text: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"table\.yaml, line 1: "):
        table.read(file_of(tmp_path, text))


def test_every_table_is_asked_for() -> None:
    assert sorted((*table.SUBJECTS, "warned", "ends")) == sorted(file.stem for file in table.FOLDER.glob("*.yaml"))
    assert all(one.source for name in table.SUBJECTS for one in table.of(name))


def test_an_installed_zdoctor_has_them(tmp_path: Path) -> None:
    """What setuptools takes into a wheel explains a failure of a subject, and one of each trainer's room."""
    words = ("egg_info", "--egg-base", tmp_path, "build", "--build-base", tmp_path, "--build-lib", tmp_path / "lib")
    built = subprocess.run(
        [sys.executable, "-c", "from setuptools import setup; setup()", *map(str, words)],
        cwd=ROOT,
        capture_output=True,
    )
    assert built.returncode == 0, built.stderr
    code = "from zdoctor.doctor.crash import table; print(table.__file__, len(table.known()))"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "lib")}
    asked = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert asked.stdout.split() == [str(tmp_path / "lib/zdoctor/doctor/crash/table.py"), str(len(table.known()))], (
        asked
    )
