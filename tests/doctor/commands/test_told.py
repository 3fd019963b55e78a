"""`zdoctor run` reads what a command says as its trainer does: its words, a shell's script, or a config."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from zdoctor.doctor.cli import main
from zdoctor.doctor.commands.told import Told, told_by

MUSUBI = "src/musubi_tuner/zimage_train_network.py --dit gone.safetensors --dataset_config good.toml --sdpa"
SD = "flux_train_network.py --dataset_config good.toml --network_module networks.lora_flux --seed 1"
GOOD = """\
[[datasets]]
resolution = [512, 512]
caption_extension = ".txt"
image_directory = "pictures"
"""
# the options of a training, as each way to start one hands them on
WAYS = [
    ("python", ["python", *SD.split()]),
    ("accelerate", ["accelerate", "launch", "--mixed_precision", "bf16", *SD.split()]),
    ("musubi-tuner", ["uv", "run", "accelerate", "launch", *MUSUBI.split()]),
    ("a module", ["python", "-m", "musubi_tuner.zimage_train_network", *MUSUBI.split()[1:]]),
    ("bash", ["bash", "train.sh", "more"]),
    ("bash with options", ["/bin/bash", "-eux", "train.sh"]),
    ("a script that is a program", ["./train.sh"]),
    ("behind other programs", ["nohup", "env", "A=b", "bash", "train.sh"]),
    ("a text for bash", ["bash", "-lc", f"cd . ; exec python {SD}"]),
    ("cmd", ["cmd", "/c", "train.bat"]),
    ("powershell", ["powershell.exe", "-ExecutionPolicy", "Bypass", "-File", "train.ps1"]),
    ("a text for powershell", ["pwsh", "-Command", f"python {SD}"]),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_state_folder: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.toml").write_text(GOOD)
    (tmp_path / "pictures").mkdir()
    (tmp_path / "train.sh").write_text(f"#!/bin/bash\naccelerate launch \\\n  {SD}\n")
    (tmp_path / "train.bat").write_text(f"@echo off\r\naccelerate launch ^\r\n  {SD}\r\n")
    (tmp_path / "train.ps1").write_text(f"accelerate launch `\n  {SD}\n")
    return tmp_path


def run(*command: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "zdoctor", "run", "--", *command]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", [way[1] for way in WAYS], ids=[way[0] for way in WAYS])
def test_what_a_command_tells_its_trainer(folder: Path, command: list[str]) -> None:
    known = told_by(command)
    assert known is not None and not known.by_name
    text = Path(known.config).read_text()
    assert "--dataset_config good.toml" in text
    assert known.command(command) == command
    if known.is_made:
        Path(known.config).write_text(text.replace("good.toml", "'a b.toml'"))
        changed = known.command(command)
        assert "good.toml" not in " ".join(changed) and len(changed) == len(command)


@pytest.mark.parametrize(
    "command",
    [
        ["python", "flux_train_network.py", *SD.split()[1:]],
        ["bash", "train.sh"],
        ["accelerate", "launch", *MUSUBI.split()],
    ],
)
def test_a_command_that_would_fail_is_not_started(folder: Path, command: list[str]) -> None:
    done = run(*command)
    assert done.returncode == 1
    assert "not started, because it would fail" in done.stderr
    assert "error KOH011" in " ".join(done.stderr.split())


def test_what_is_not_known_is_not_called_good(folder: Path) -> None:
    mine = folder / "mine.py"
    mine.write_text("print('trained')")
    done = run(sys.executable, str(mine), "--lr", "1")
    assert done.stdout == "trained\n" and "not judged: zdoctor knows neither" in done.stderr
    (folder / "pictures" / "a.png").write_bytes(b"x")
    named = told_by([sys.executable, str(mine), "--dataset_config", "good.toml"])
    assert named == Told("good.toml", by_name=True)


def test_a_script_that_starts_nothing_known_is_not_called_broken(folder: Path) -> None:
    (folder / "train.sh").write_text("exec ./private --lr 1\n")
    assert told_by(["bash", "train.sh"]) is None
    assert told_by(["bash", "-c", "echo flux_train_network.py --lr 1"]) is None
    assert told_by(["bash", "gone.sh", "\0"]) is None


@pytest.mark.skipif(os.name != "posix", reason="modes as POSIX has them")
def test_the_words_of_a_command_are_the_owners_alone(folder: Path) -> None:
    command = ["python", *SD.split(), "--wandb_api_key", "0123456789"]
    known = told_by(command)
    assert known is not None and known.is_made
    assert Path(known.config).read_text() == shlex.join(command) + "\n"
    assert Path(known.config).stat().st_mode & 0o077 == 0


COMMAND = ["accelerate", "launch", "sdxl_train_network.py", "--config_file", "sdxl.toml"]


def test_a_report_names_the_command_and_not_the_file_made_of_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A config file of sd-scripts does not say which script it is for; the command does."""
    settings = ["train_data_dir = 'pictures'", "network_module = 'networks.lora'", "mixed_precision = 'bf16'"]
    Path("sdxl.toml").write_text("\n".join(["pretrained_model_name_or_path = 'gone.safetensors'", *settings]))
    main(["check", "sdxl.toml"])
    assert "zdoctor check -- COMMAND" in " ".join(capsys.readouterr().out.split())
    main(["check", "--", *COMMAND])
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith(f"zdoctor check -- {' '.join(COMMAND)} sd-scripts")
    assert f"zdoctor check -v -- {' '.join(COMMAND)}" in said and "does not say which model" not in said
    main(["memory", "--no-rehearsal", "--", *COMMAND])
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith(f"zdoctor memory -- {' '.join(COMMAND)} ") and "training step" in said
    main(["memory", "--no-rehearsal", "--format", "html", "-o", "page.html", "--", *COMMAND])
    assert f'<h1 dir="auto">zdoctor memory -- {" ".join(COMMAND)}</h1>' in Path("page.html").read_text()
    assert main(["memory", "sdxl.toml", "--", *COMMAND]) == 2
    assert "sdxl.toml and a command were named" in capsys.readouterr().err
