"""Hostile and broken input: every command answers with one clear line or a finding, soon, and never a traceback."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from zdoctor.doctor.cli import main

GOOD = """job: extension
config:
  name: "a"
  process:
    - type: sd_trainer
      training_folder: out
      network: {type: lora, linear: 8}
      datasets:
        - folder_path: images
      train: {steps: 10, dtype: bf16}
      model: {name_or_path: model, arch: zimage}
"""
HEAD = "job: extension\nconfig:\n  name: a\n  process:\n"


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HOME", str(tmp_path))


def run(*words: str) -> int:
    try:
        return main(words)
    except SystemExit as stop:
        return int(stop.code or 0)


def laughs(open: str, close: str, entry: str) -> str:
    lines = ["a0: &a0 [x, x]"]
    for level in range(1, 30):
        entries = ", ".join(entry.format(n=n, anchor=f"*a{level - 1}") for n in range(10))
        lines.append(f"a{level}: &a{level} {open}{entries}{close}")
    return "\n".join(lines) + "\n" + GOOD


def process(line: str) -> str:
    return f"{HEAD}    {line}\n"


CONFIGS: dict[str, tuple[bytes | str, str]] = {
    "empty": (b"", "empty"),
    "blank": (b"  \n\n", "empty"),
    "binary": (bytes(range(256)) * 20, "NUL"),
    "a picture": (b"\x89PNG\r\n\x1a\n" + b"\0" * 500, "NUL"),
    "a list": ("- a\n- b\n", "a list"),
    "text": ("hello", "one piece of text"),
    "recursive": ("job: extension\nconfig: &a\n  name: x\n  process: *a\n", "contains itself"),
    "laughs in lists": (laughs("[", "]", "{anchor}"), "far more values"),
    "laughs in mappings": (laughs("{", "}", "k{n}: {anchor}"), "far more values"),
    "a tag that runs code": ('job: !!python/object/apply:os.mkdir ["pwned"]\n', "constructor for the tag"),
    "a tag of a name": (GOOD.replace("sd_trainer", "!!python/name:os.system"), "constructor for the tag"),
    "utf-16": (GOOD.encode("utf-16"), "UTF-16"),
    "odd utf-16": (GOOD.encode("utf-16") + b"x", "UTF-16"),
    "cp1252": (GOOD.replace("images", "im\xe4ges").encode("cp1252"), "Windows-1252"),
    "tabs": (GOOD.replace("  ", "\t"), "tabs"),
    "nul": (GOOD.replace("images", "im\0ages"), "NUL"),
    "raw escape": (GOOD.replace("images", "\x1b[31m"), "U+001B"),
    "unset variable": (GOOD.replace("images", "${ZDOCTOR_UNSET}"), "ZDOCTOR_UNSET"),
    "variable named by an escape": (GOOD.replace("images", "${A\x1b[31m}"), "is not set"),
    "no process": (HEAD, "config.process"),
    "process list empty": ("job: extension\nconfig: {name: a, process: []}\n", "must be a list"),
    "process a mapping": ("job: extension\nconfig: {name: a, process: {type: sd_trainer}}\n", "must be a list"),
    "process a number": (process("- 5"), "process[0].type"),
    "type a list": (process("- type: [1]"), "must be the name of a process"),
    "type a number": (process("- type: 5"), "must be the name of a process"),
    "job a list": ("job: [a]\nconfig: {name: a, process: [{type: x}]}\n", "Unknown job type"),
    "job an escape": ('job: "\\e[31m"\nconfig: {name: a, process: [{type: x}]}\n', "Unknown job type"),
    "config a list": ("job: extension\nconfig: [1]\n", "must be a section"),
    "10000 processes": (HEAD + "    - {type: sd_trainer}\n" * 10_000, "far more values"),
    "500 processes": (HEAD + "    - {type: sd_trainer, model: {name_or_path: m}}\n" * 500, "500 processes"),
    "20000 keys": (GOOD + "".join(f"      k{n}: 1\n" for n in range(20_000)), "far more values"),
    "300 unknown keys": (GOOD + "".join(f"      k{n}: 1\n" for n in range(300)), "reads no key"),
    "deep": ("[" * 100_000, "nested too deeply"),
    "deep blocks": ("".join(" " * n + "a:\n" for n in range(300)), "nested too deeply"),
    "large": (GOOD + "# " + "x" * 1_000_000, "more than 500 kB"),
    "open variables": (GOOD + "# " + "${" * 200_000, "images"),
    "an escape": (GOOD.replace("images", '"im\\e[31mages\\x9b31m"'), "does not exist"),
    "half a character": (GOOD.replace("images", '"im\\ud800ages"'), "im"),
    "a key with an escape": (GOOD + '      "tr\\e[31main": 1\n', "reads no key"),
    "datasets a word": (GOOD + "      datasets: x\n", "must be a list"),
    "network a list": (GOOD + "      network: []\n", "must be a section"),
    "resolution a word": (GOOD.replace("images", "images\n          resolution: big"), "resolution"),
    "steps a date": (GOOD.replace("steps: 10", "steps: 2020-01-01"), "date"),
    "steps too long": (GOOD.replace("steps: 10", "steps: " + "9" * 5000), "digits"),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_bad_config_is_a_finding(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, says = CONFIGS[name]
    file = tmp_path / "bad.yaml"
    file.write_bytes(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)
    before = file.read_bytes()
    code = run("check", "bad.yaml")
    out, err = capsys.readouterr()
    assert code in (1, 2), out + err
    assert says in " ".join(out.split())
    assert "Traceback" not in out + err and "crashed" not in out and " failed: " not in out
    assert unprintable(out + err) == []
    assert run("check", "bad.yaml", "--format", "json") == code
    assert json.loads(capsys.readouterr().out)["config"] == "bad.yaml"
    assert file.read_bytes() == before and not os.path.lexists("pwned")


def unprintable(text: str) -> list[str]:
    return [c for c in text if (ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160 or 0xD800 <= ord(c) < 0xE000]
