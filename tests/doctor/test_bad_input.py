"""Hostile and broken input: every command answers with one clear line or a finding, soon, and never a traceback."""

from __future__ import annotations

import json
import os
import pickle
import struct
import subprocess
import sys
from contextlib import suppress
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
    "10000 processes": (HEAD + "    - {type: sd_trainer}\n" * 10_000, "10000 processes"),
    "500 processes": (HEAD + "    - {type: sd_trainer, model: {name_or_path: m}}\n" * 500, "500 processes"),
    "20000 keys": (f"{GOOD}meta: {{{', '.join(f'k{n}: 1' for n in range(20_000))}}}\n", "images"),
    "300 unknown keys": (GOOD + "".join(f"      k{n}: 1\n" for n in range(300)), "reads no key"),
    "deep": ("[" * 100_000, "nested too deeply"),
    "deep blocks": ("".join(" " * n + "a:\n" for n in range(300)), "nested too deeply"),
    "large": (GOOD + "# " + "x" * 3_000_000, "more than 2 MB"),
    "open variables": (GOOD + "# " + "${" * 200_000, "images"),
    "an escape": (GOOD.replace("images", '"im\\e[31mages\\x9b31m"'), "does not exist"),
    "half a character": (GOOD.replace("images", '"im\\ud800ages"'), "im"),
    "a key with an escape": (GOOD + '      "tr\\e[31main": 1\n', "reads no key"),
    "datasets a word": (GOOD + "      datasets: x\n", "must be a list"),
    "network a list": (GOOD + "      network: []\n", "must be a section"),
    "resolution a word": (GOOD.replace("images", "images\n          resolution: big"), "resolution"),
    "steps infinite": (GOOD.replace("steps: 10", "steps: .inf"), "whole numbers only"),
    "steps a fraction": (GOOD.replace("steps: 10", "steps: 1e3"), "whole numbers only"),
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
    assert code in (1, 2, 3), out + err
    assert says in " ".join(out.split())
    assert "Traceback" not in out + err and "crashed" not in out and " failed: " not in out
    assert unprintable(out + err) == [] and out.count("\N{REPLACEMENT CHARACTER}") < 10, "binary data on the terminal"
    assert run("check", "bad.yaml", "--format", "json") == code
    assert json.loads(capsys.readouterr().out)["config"] == "bad.yaml"
    assert file.read_bytes() == before and not os.path.lexists("pwned")


def unprintable(text: str) -> list[str]:
    """Control characters, overrides of the writing direction and halves of characters."""
    ranges = ((0, 9), (11, 32), (127, 160), (0x202A, 0x202F), (0x2066, 0x206A), (0xD800, 0xE000))
    return [c for c in text if any(low <= ord(c) < high for low, high in ranges)]


def shell(words: str, folder: Path, **environment: str) -> tuple[int, str]:
    """Exit code and standard error of zdoctor in a shell, where what is piped and closed is as it would be."""
    command = ["bash", "-o", "pipefail", "-c", words.replace("zdoctor", f"{sys.executable} -m zdoctor")]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, stderr=subprocess.PIPE, text=True, timeout=60
    )
    return done.returncode, done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="a POSIX shell")
@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("zdoctor check good.yaml | true", 1, ""),
        ("zdoctor check good.yaml >&-", 1, ""),
        ("zdoctor check good.yaml > /dev/full", 2, "cannot be written"),
        ("zdoctor rules | true", 0, ""),
        ("zdoctor --help >/dev/null", 0, ""),
        ("mkdir gone; cd gone; rmdir ../gone; zdoctor check ../good.yaml", 2, "does not exist any more"),
    ],
)
def test_an_output_that_ends_early_changes_no_verdict(words: str, code: int, says: str, tmp_path: Path) -> None:
    if "/dev/full" in words and not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full on this system")
    (tmp_path / "good.yaml").write_text(GOOD)
    found, error = shell(words, tmp_path, PYTHONIOENCODING="ascii", PYTHONPATH=str(Path(__file__).parents[3]))
    assert found == code, error
    assert says in error and "Traceback" not in error and "our bug" not in error


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_never_waited_for(
    tmp_path: Path, own_state_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    assert run("check") in (0, 1) and "the environment alone" in capsys.readouterr().out
    assert run("check", "pipe.yaml") == 2
    (tmp_path / "good.yaml").write_text(GOOD)
    assert run("check", "good.yaml", "--machine", "pipe.yaml") == 2
    os.mkfifo(own_state_folder / "configs.json")
    assert run("check", "good.yaml") == 1
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("text", ["[" * 100_000, '{"schema": "zdoctor.machine/1", "files": {"/a": 5}}', "[]", "\0"])
def test_a_bad_machine_file_is_one_line(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "machine.json").write_text(text)
    assert run("check", "good.yaml", "--machine", "machine.json") == 2
    assert capsys.readouterr().err.startswith("zdoctor: machine.json is no machine file")


def test_errors_do_not_speak_to_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "a\x1b[2J\u202eb.yaml"
    (tmp_path / name).write_text(GOOD)
    for words in (
        ["check", "a[2Jb.yaml"],
        ["undo", "\x1b[31m"],
        ["check", "--select", "\x1b[31m", name],
        ["\x1b[31m"],
    ):
        assert run(*words) == 2
    assert run("check", name, "--format", "json") == 1
    assert run("check", name) == 1
    out, err = capsys.readouterr()
    assert unprintable(out + err) == []


def safetensors(header: bytes, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header)) + header + data


WEIGHTS = "transformer/diffusion_pytorch_model.safetensors"
INDEX = f"{WEIGHTS}.index.json"
CONFIG = "transformer/config.json"
FILES: dict[str, tuple[str, bytes, str]] = {
    "a web page": (WEIGHTS, b"<!DOCTYPE html>" + b"x" * 999, "a web page"),
    "a pointer": (WEIGHTS, b"version https://git-lfs.github.com/spec/v1\noid sha256:aa\n", "git-lfs"),
    "a header of 4 GB": (WEIGHTS, struct.pack("<Q", 4 << 30) + b"{" * 99, "no header length"),
    "nothing": (WEIGHTS, b"", "0 bytes"),
    "a pickle": (WEIGHTS.replace("safetensors", "bin"), pickle.dumps(print), "pickle"),
    "a deep header": (WEIGHTS, safetensors(b"[" * 99_999), "nests too deeply"),
    "a huge shape": (
        WEIGHTS,
        safetensors(b'{"a":{"dtype":"F32","shape":[%d],"data_offsets":[0,4]}}' % 10**30),
        "shape",
    ),
    "an escape": (
        WEIGHTS,
        safetensors(b'{"a\x1b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', b"1234"),
        "JSON",
    ),
    "many layers": (CONFIG, b'{"_class_name":"ZImageTransformer2DModel","n_layers":1000000000}', "out of range"),
    "endless digits": (CONFIG, b'{"n_layers":' + b"9" * 5000 + b"}", "config.json"),
    "a list": (CONFIG, b"[1]", "transformer"),
    "a huge config": (CONFIG, b'{"a":"' + b"x" * 5_000_000 + b'"}', "transformer"),
    "a shard above": (INDEX, b'{"weight_map":{"a":"../x.safetensors"}}', "cannot lie in its folder"),
    "a shard with NUL": (INDEX, b'{"weight_map":{"a":"a\\u0000b"}}', "cannot lie in its folder"),
    "half a character": (INDEX, b'{"weight_map":{"a":"\\ud800"}}', "transformer"),
    "a long shard": (INDEX, b'{"weight_map":{"a":"' + b"x" * 5000 + b'"}}', "cannot lie in its folder"),
    "an index of everything": (
        "model_index.json",
        b'{"../../etc":["a","b"],"n\\u0000":["a","b"],"vae":[null]}',
        "vae",
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_bad_model_file_is_a_finding(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, content, says = FILES[name]
    (tmp_path / "good.yaml").write_text(GOOD)
    for part in ("transformer", "vae", "text_encoder"):
        (tmp_path / "model" / part).mkdir(parents=True)
        (tmp_path / "model" / part / "config.json").write_text("{}")
    (tmp_path / "model" / "model_index.json").write_text('{"transformer": ["diffusers", "ZImageTransformer2DModel"]}')
    (tmp_path / "model" / file).write_bytes(content)
    code = run("check", "good.yaml", "-v")
    out, err = capsys.readouterr()
    assert code == 1, out + err
    assert says in " ".join(out.split())
    assert "Traceback" not in out + err and "crashed" not in out and " failed: " not in out
    assert unprintable(out + err) == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_pipes_loops_and_odd_names_on_disk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "images" / "a").mkdir(parents=True)
    (tmp_path / "images" / "a" / "up").symlink_to("..")
    (tmp_path / "images" / "self").symlink_to("self")
    os.mkfifo(tmp_path / "images" / "pipe.png")
    with suppress(OSError):  # a system whose names are text
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/images/\xff\x1b[2J\n.png")).touch()
    (tmp_path / "model" / "vae").mkdir(parents=True)
    os.mkfifo(tmp_path / "model" / "model_index.json")
    os.mkfifo(tmp_path / "model" / "vae" / "diffusion_pytorch_model.safetensors")
    (tmp_path / "model" / "transformer").symlink_to("transformer")
    for words in (
        ["check", "good.yaml"],
        ["check", "good.yaml", "--format", "json"],
        ["fix", "good.yaml"],
        ["facts", "good.yaml"],
    ):
        assert run(*words) in (0, 1)
        out, err = capsys.readouterr()
        assert unprintable(out + err) == [] and "Traceback" not in err


def test_a_crowded_cache(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Thousands of files beside each other, and a file list that leads out of the snapshot."""
    root = tmp_path / "hf" / "hub" / "models--a--b"
    commit = "ab" * 20
    snapshot = root / "snapshots" / commit
    (snapshot / "transformer").mkdir(parents=True)
    (root / "refs").mkdir()
    (root / "trees").mkdir()
    (root / "refs" / "main").write_text(commit)
    (snapshot / "model_index.json").write_text("{}")
    for number in range(3000):
        (snapshot / "transformer" / f"{number}.txt").touch()
    (tmp_path / "good.yaml").write_text(GOOD.replace("name_or_path: model", "name_or_path: a/b"))
    entry = {"size": 2, "blob_id": "a" * 40}
    for names in ("{", json.dumps({"../../../evil": entry}), json.dumps({"\x1b[31m": entry, "\ud800": entry})):
        files = names if names == "{" else f'{{"format_version": 1, "files": {names}}}'
        (root / "trees" / f"{commit}.json").write_text(files)
        assert run("check", "good.yaml") == 1
        out, err = capsys.readouterr()
        assert unprintable(out + err) == [] and "crashed" not in out and " failed: " not in out


def test_every_command_says_what_to_type_about_a_config_that_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.yaml").write_bytes(b"a\0b")
    assert run("fix", "c.yaml") == 1
    assert "next: zdoctor check c.yaml   says what is wrong" in capsys.readouterr().out
    assert run("check", "c.yaml", "--select", "MEM") == 3
    assert "next: zdoctor check c.yaml   says why the config cannot be read" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("sd.toml", "[general]\nshuffle_caption = true\n", "This TOML file is no training config that zdoctor knows"),
        ("config.env", "export MODEL_TYPE=lora\n", "This file of shell variables is no training config"),
        (
            "mine.json",
            '{"model": "flux", "steps": 100}',
            "no training config that zdoctor knows: it holds model, steps.",
        ),
        (
            "other.yaml",
            "base_model: x\nadapter: lora\n",
            "no training config that zdoctor knows: it holds base_model,",
        ),
        (
            "compose.yml",
            "services:\n  a: ${NOT_SET:-1}\n",
            "no training config that zdoctor knows: it holds services.",
        ),
        ("empty_value.toml", "[a]\nb =\n", "A value or a closing bracket is missing in this line."),
        ("open_bracket.toml", "[a\nb = 1\n", "A value or a closing bracket is missing in this line."),
        ("open_quote.toml", 'a = "x\nb = 1\n', "The quote is not closed in this line."),
        ("open_list.toml", "a = [\n  1,\n", "A bracket is not closed before the end of the file."),
        ("twice.toml", "a = 1\na = 2\n", 'Key "a" already exists. 2 | a = 2'),
        ("text.toml", "a = C:\\x\n", "Text needs quotes"),
        ("switch.toml", "a = True\n", "true and false are written in small letters."),
        ("binary.yaml", "a\0b", "Name the text file (YAML, JSON or TOML)"),
        ("script.py", "def f(:\n", "cannot parse it: invalid syntax. 1 | def f(:"),
        ("list.yaml", "- a\n- b\n", "no training config that zdoctor knows: it holds a list."),
        ("commented.jsonc", '{\n // a remark\n "job": "extension"}', "no comments"),
    ],
)
def test_a_file_that_is_no_config_is_one_clear_line(
    name: str, text: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text)
    foreign = "no training config" in says
    # of a file that nobody is known to read, nobody can say what its trainer would do: it may be a fork's
    assert run("check", name) == (3 if foreign else 1)
    out = " ".join(capsys.readouterr().out.split())
    assert says in out and ".. " not in out
    assert ("Nothing in it can be checked." in out) is foreign
    assert ("--trainer NAME reads it as a config of the trainer of that name" in out) is foreign


def test_a_yaml_with_keys_of_simpletuner_is_another_programs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "profile.yaml").write_text("model_family: krea2\nmodel_type: lora\n")
    assert run("check", "profile.yaml") == 3
    assert "by its name this is none of them" in " ".join(capsys.readouterr().out.split())


def test_a_variable_may_be_set_where_the_trainer_is_started(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A program that fills in a template, or a container, sets it; nothing in the file can be judged before."""
    (tmp_path / "t.yaml").write_text(CONFIGS["unset variable"][0])  # type: ignore[arg-type]
    assert run("check", "t.yaml") == 3
    out = " ".join(capsys.readouterr().out.split())
    assert "The environment variable ZDOCTOR_UNSET is not set" in out and "Nothing in it can be checked." in out
    assert run("check", "t.yaml", "--strict") == 1


@pytest.mark.parametrize("name", ["re", "json", "argparse", "typing", "yaml"])
def test_a_module_in_the_current_folder_is_not_run(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text("raise SystemExit('not ours')")
    (tmp_path / "c.yaml").write_text("a: 1")
    words = [sys.executable, "-m", "zdoctor", "check", "c.yaml"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 3 and "no training config" in done.stdout, done.stderr
