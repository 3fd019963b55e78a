"""SIM012: what a reader that names no encoding makes of a config, and what it makes of it with PYTHONUTF8."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from zdoctor.checks.simpletuner.encoding import config_in_another_encoding
from zdoctor.doctor.model import Host, System
from zdoctor.doctor.trainers.read import Reading, read_config
from zdoctor.fixes.host import read_texts_as_utf8

SYSTEM = System("windows", "11", "3.12", "C:\\st", "C:\\Users\\mei", 8, 1 << 36, 1 << 36)
OPTIONS = {"model_type": "lora", "model_family": "zimage", "output_dir": "out", "data_backend_config": "d.json"}
READ = "import json, sys; print(ascii(json.load(open(sys.argv[1], 'r'))['validation_prompt']))"


def reading(prompt: str, *, ascii: bool = False) -> Reading:
    text = json.dumps({**OPTIONS, "validation_prompt": prompt}, ensure_ascii=ascii)
    return read_config("config.json", text.encode(), {})


@pytest.mark.parametrize(
    ("prompt", "encoding", "variables", "says"),
    [
        ("café", "cp1252", {}, "garbled"),
        ("猫の絵です", "cp932", {}, "UnicodeDecodeError"),
        ("café", "UTF-8", {}, ""),
        ("café", "cp1252", {"PYTHONUTF8": "1"}, ""),
        ("a cat", "cp1252", {}, ""),
        ("café", "", {}, ""),
        ("café", "an encoding of the moon", {}, ""),
    ],
)
def test_the_encoding_of_the_region(prompt: str, encoding: str, variables: dict[str, str], says: str) -> None:
    read = reading(prompt)
    system = replace(SYSTEM, environment=variables)
    (run,) = read.runs
    seen = list(config_in_another_encoding(run, read.config, Host(encoding=encoding), system))
    assert len(seen) == bool(says)
    for finding in seen:
        assert says in finding.consequence() and finding.where is not None and finding.where.line == 1
        (fix,) = read_texts_as_utf8(finding, system)
        assert fix.command == '$env:PYTHONUTF8 = "1"'


def test_escaped_letters_are_ascii() -> None:
    read = reading("café", ascii=True)
    (run,) = read.runs
    assert not list(config_in_another_encoding(run, read.config, Host(encoding="cp1252"), SYSTEM))


def test_python_reads_it_as_utf8_where_it_is_told_to(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(reading("café").config.text, encoding="utf-8")

    def said(**variables: str) -> subprocess.CompletedProcess[str]:
        plain = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", **variables}
        command = [sys.executable, "-c", READ, str(file)]
        return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **plain})

    assert "UnicodeDecodeError" in said(PYTHONUTF8="0").stderr
    assert said(PYTHONUTF8="1").stdout == "'caf\\xe9'\n"
