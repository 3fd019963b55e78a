"""The text encoder in a process of its own gives the same, fails in words, and is never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch

from zdoctor.doctor.progress import Progress
from zdoctor.doctor.train import TrainError
from zdoctor.doctor.train.encode.encoding_cache import EncodingCache
from zdoctor.doctor.train.encode.text_embeddings import TextEmbeddings
from zdoctor.doctor.train.encode.text_encoder_process import TextEncoderProcess
from zdoctor.doctor.train.families import zimage

CPU = torch.device("cpu")
PROMPTS = ("a red circle", 'two\nlines, "quotes" and ünïcödé')


def texts(model: Path, cache: Path, process: TextEncoderProcess | None = None) -> TextEmbeddings:
    return TextEmbeddings(
        EncodingCache(cache), zimage, {n: model / n for n in zimage.TEXT_PARTS}, torch.float32, "none", process
    )


silence = Progress()


@pytest.fixture(autouse=True)
def as_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.mark.thorough
def test_it_gives_what_this_process_would(tiny: Path, tmp_path: Path) -> None:
    process = TextEncoderProcess()
    process.start()
    other = texts(tiny, tmp_path / "other", process)
    assert other.begin(PROMPTS, CPU, silence, 1) == 2
    other.finish(silence)
    assert process.process is None
    here = texts(tiny, tmp_path / "here")
    here.prepare(PROMPTS, CPU, silence)
    for prompt in PROMPTS:
        assert torch.equal(other.get(prompt)["states"], here.get(prompt)["states"])
    assert other.begin(PROMPTS, CPU, silence, 1) == 0 and process.process is None


def test_what_it_cannot_load_is_told_as_here(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "text_encoder").mkdir()
    (tmp_path / "text_encoder" / "config.json").write_text("{")
    (tmp_path / "tokenizer").symlink_to(tiny / "tokenizer")
    said = []
    for process in (None, TextEncoderProcess()):
        with pytest.raises(TrainError) as caught:
            texts(tmp_path, tmp_path / "cache", process).prepare(PROMPTS, CPU, silence)
        said.append(str(caught.value))
    assert said[0] == said[1] and "config.json" in said[0]


@pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")
def test_nothing_waits_for_its_imports(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "transformers.py").write_text("import signal; signal.pause()")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    process = TextEncoderProcess()
    assert texts(tiny, tmp_path / "cache", process).begin(["more than a pipe holds " * 100_000], CPU, silence, 1) == 1
    process.close()
    assert process.process is None


@pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")
def test_killed_for_want_of_memory(tiny: Path, tmp_path: Path) -> None:
    process = TextEncoderProcess()
    other = texts(tiny, tmp_path, process)
    other.begin(PROMPTS, CPU, silence, 1)
    assert process.process is not None
    process.process.send_signal(signal.SIGKILL)
    with pytest.raises(TrainError, match=r"killed .* memory runs out"):
        other.finish(silence)
    assert process.process is None


def test_it_ends_without_a_word(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "transformers.py").write_text("raise SystemExit('out of luck')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(TrainError, match=r"ended with code 1\. Its last line: out of luck"):
        texts(tiny, tmp_path / "cache", TextEncoderProcess()).prepare(PROMPTS, CPU, silence)


def test_a_package_that_is_broken_is_named(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "transformers.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(TrainError, match=r"operator torchvision::nms does not exist\. A package"):
        texts(tiny, tmp_path / "cache", TextEncoderProcess()).prepare(PROMPTS, CPU, silence)


STARTER = """
import os, sys
from zdoctor.doctor.train.encode.text_encoder_process import TextEncoderProcess
process = TextEncoderProcess()
process.start()
print(process.process.pid, flush=True)
sys.stdin.read(1)
os._exit(1)
"""


def test_it_ends_with_the_one_that_started_it() -> None:
    with subprocess.Popen([sys.executable, "-c", STARTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as starter:
        assert starter.stdin is not None and starter.stdout is not None
        left = psutil.Process(int(starter.stdout.readline()))
        starter.kill()
    assert psutil.wait_procs([left], timeout=60)[1] == []


@pytest.mark.skipif(os.name != "posix", reason="the launcher is a shell script")
def test_it_ends_also_behind_a_launcher(tmp_path: Path) -> None:
    """In a virtual environment of Windows, python.exe starts the real one and outlives who started it."""
    launcher = tmp_path / "python"
    launcher.write_text(f'#!/bin/sh\n"{sys.executable}" "$@"\n')
    launcher.chmod(0o755)
    code = f"import sys; sys.executable = {str(launcher)!r}{STARTER}"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as starter:
        assert starter.stdin is not None and starter.stdout is not None
        left = psutil.Process(int(starter.stdout.readline()))
        while not left.children():
            assert left.is_running()
        starter.kill()
    assert psutil.wait_procs([left], timeout=60)[1] == []


TRAIN = """
import sys
from zdoctor.doctor.cli import main
code = main(["train", "config.yaml"])
print("heavy:", *sorted({"transformers", "peft", "torchvision", "torch._dynamo"} & sys.modules.keys()))
sys.exit(code)
"""


def test_a_run_of_its_own_imports_less_and_learns_the_same(
    tiny: Path, circles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from zdoctor.doctor.cli import main

    from ..test_command import config

    losses = []
    for name in ("here", "alone"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        config(tiny, circles, steps=2)
        if name == "here":
            assert main(["train", "config.yaml"]) == 0
        else:
            done = subprocess.run([sys.executable, "-c", TRAIN], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            assert done.stdout.splitlines()[-1] == "heavy:"
        losses.append(Path("out/circles/losses.jsonl").read_text().splitlines())
    assert len(losses[0]) == 2
    assert [line.split('"loss"')[1].split(",")[0] for line in losses[0]] == [
        line.split('"loss"')[1].split(",")[0] for line in losses[1]
    ]
