"""What is pasted into an issue tells the failure and the versions, and nothing of the user."""

from __future__ import annotations

from pathlib import Path

import pytest

from zdoctor.doctor.cli import main
from zdoctor.doctor.crash import explain
from zdoctor.doctor.crash.question import MOST_LINES, anonymous
from zdoctor.tests.configs_on_disk import write_config
from zdoctor.tests.reports.documents import valid

from .shapes import ai_toolkit, traceback

LOG = """PyTorch 2.7.1+cu128 on NVIDIA GeForce RTX 4090, diffusers==0.35.1
ERROR: No matching distribution found for peft==9.9.9
transformers version: 5.5.3
C:\\Users\\john\\ai-toolkit> python run.py
Traceback (most recent call last):
  File "/home/jane/ai-toolkit/toolkit/foo.py", line 3, in bar
    log("jane@example.org", "10.11.12.13", "hf_abcdefghijklmnopqrstuvwx", "00112233445566778899aabbccddeeff")
  File "/home/jane/venv/lib/python3.11/site-packages/torch/x.py", line 9, in baz
    raise ValueError
ValueError: strange thing in /Users/jane/x and C:\\Users\\john\\y
"""


def test_versions_are_those_that_are_installed() -> None:
    seen = explain(LOG, [])
    assert seen.known is None and seen.failure is not None
    assert dict(seen.versions) == {
        "torch": "2.7.1+cu128",
        "diffusers": "0.35.1",
        "transformers": "5.5.3",
        "python": "3.11",
        "card": "NVIDIA GeForce RTX 4090",
    }


def test_nobody_is_named() -> None:
    seen = explain(LOG, [])
    for word in ("jane", "john", "10.11", "hf_abc", "001122"):
        assert word not in seen.excerpt
    assert "ValueError: strange thing in /Users/***/x" in seen.excerpt and "torch/x.py" in seen.excerpt


def test_a_long_failure_is_shortened_in_its_middle() -> None:
    frames = [(f"/x/{n}.py", "f", "g()") for n in range(90)]
    seen = explain(traceback("MyError: at last", *frames), [])
    lines = seen.excerpt.splitlines()
    assert len(lines) <= MOST_LINES + 1 and lines[-1] == "MyError: at last" and "left out" in seen.excerpt


@pytest.mark.parametrize("text", ["torch 2.7.1", "a/b/c.py:12", "1.2.3", "/usr/lib/x.so", "step 10/20"])
def test_what_is_nobodys_is_kept(text: str) -> None:
    assert anonymous(text) == text


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "train.log"
    log.write_text(LOG, encoding="utf-8")
    assert main(["explain", str(log)]) == 3
    said = capsys.readouterr().out
    assert "paste what follows" in said and "versions: " in said and "/home/***/ai-toolkit" in said
    assert main(["explain", str(log), "--format", "json"]) == 3
    out = capsys.readouterr().out
    data = valid(out)
    assert data["schema"] == "zdoctor.explanation/1" and data["failed"] and not data["known"]
    assert data["failure"]["frame"]["line"] == 3 and data["versions"]["python"] == "3.11"
    assert "jane" not in out and "hf_abc" not in out
    log.write_text("step 1\nmodel saved.\n", encoding="utf-8")
    assert main(["explain", str(log), "--format", "json"]) == 0
    data = valid(capsys.readouterr().out)
    assert data["worked"] and not data["failed"]


def test_a_rule_alone_tells_cause_and_cure_and_the_config_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "train.log"
    log.write_text(ai_toolkit("AssertionError: no images found in data"), encoding="utf-8")
    (tmp_path / "data").mkdir()
    config = write_config(tmp_path)
    assert main(["explain", str(log), str(config)]) == 0
    said = capsys.readouterr().out
    assert "cause: " in said and "do:    " in said and "confirmed here." in said
    assert main(["explain", str(log), str(config), "--format", "json"]) == 0
    data = valid(capsys.readouterr().out)
    assert data["cause"] and data["do"] and data["rules"][0]["confirmed"] is True
    (tmp_path / "data" / "a.png").write_bytes(b"\x89PNG")
    assert main(["explain", str(log), str(config)]) == 0
    assert "not the case here" in " ".join(capsys.readouterr().out.split())
