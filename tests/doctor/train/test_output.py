"""What a run finds in its output folder, and what it leaves there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from glob import glob
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from zdoctor.doctor.model.recipe import SamplePrompt
from zdoctor.doctor.train import TrainError
from zdoctor.doctor.train.output.checkpoint_files import write_lora
from zdoctor.doctor.train.runtime.run_lock import lock_run
from zdoctor.doctor.train.runtime.stop_signals import BEGAN, Stop, interruptible

from .patient import Recorder, go, run_with, written


def test_a_finished_run_says_so_and_loads_nothing(tiny: Path, circles: Path, tmp_path: Path) -> None:
    first = go(run_with(steps=2), tiny, circles, tmp_path)
    before = Path(first.lora).stat()
    recorder = Recorder()
    again = go(run_with(steps=2), tiny, circles, tmp_path, progress=recorder)
    assert (again.stopped, again.steps, again.losses, again.lora) == ("finished", 2, first.losses, first.lora)
    assert recorder.phases == ["Checking the model files"]
    assert any("finished: 2 steps of 2" in note for note in recorder.notes)
    assert Path(first.lora).stat() == before


def test_a_finished_run_without_its_file_writes_it_again(tiny: Path, circles: Path, tmp_path: Path) -> None:
    first = go(run_with(steps=2), tiny, circles, tmp_path)
    before = load_file(first.lora)
    Path(first.lora).unlink()
    recorder = Recorder()
    again = load_file(go(run_with(steps=2), tiny, circles, tmp_path, progress=recorder).lora)
    assert recorder.steps == []
    assert all(torch.equal(before[key], again[key]) for key in before)


def test_equal_loras_are_equal_files(tmp_path: Path) -> None:
    tensors = {f"layers.{number}.lora_A.weight": torch.full((2, 3), float(number)) for number in range(20)}
    metadata = {f"ss_{letter}": letter for letter in "hgfedcbaü"}
    for number in range(4):
        write_lora(tmp_path / f"{number}.safetensors", tensors, torch.bfloat16, metadata)
    first, *others = (file.read_bytes() for file in sorted(tmp_path.iterdir()))
    assert all(content == first for content in others)
    with safe_open(str(tmp_path / "0.safetensors"), framework="pt") as opened:
        assert opened.metadata() == {**metadata, "format": "pt"}
        assert torch.equal(opened.get_tensor("layers.7.lora_A.weight"), torch.full((2, 3), 7.0).bfloat16())


@pytest.mark.parametrize("name", ["circles.safetensors", "circles_000000250.safetensors"])
@pytest.mark.parametrize("software", [None, {"name": "ai-toolkit"}])
def test_a_lora_of_another_program_is_never_touched(
    tiny: Path, circles: Path, tmp_path: Path, name: str, software: dict[str, str] | None
) -> None:
    file = tmp_path / name
    facts = {} if software is None else {"software": json.dumps(software)}
    save_file({"a": torch.zeros(1)}, str(file), metadata=facts)
    before = file.read_bytes()
    with pytest.raises(TrainError, match="not written by zdoctor"):
        go(run_with(save_every=1, keep_saves=1), tiny, circles, tmp_path)
    assert file.read_bytes() == before


def test_other_names_beside_it_are_nobodys_business(tiny: Path, circles: Path, tmp_path: Path) -> None:
    (tmp_path / "circles_two.safetensors").write_bytes(b"not mine")
    (tmp_path / "optimizer.pt").write_bytes(b"ai-toolkit's")
    go(run_with(steps=1), tiny, circles, tmp_path)
    assert (tmp_path / "circles_two.safetensors").read_bytes() == b"not mine"


def test_ai_toolkit_would_go_on_from_a_lora_not_from_our_state(tiny: Path, circles: Path, tmp_path: Path) -> None:
    """It takes the newest of `<name>*` in the folder."""
    go(run_with(steps=2, save_every=1), tiny, circles, tmp_path)
    names = {Path(path).name for path in glob(str(tmp_path / "circles*"))}
    assert names == {"circles.safetensors", "circles_000000001.safetensors"}


def test_two_runners_of_one_run_do_not_meet(tiny: Path, circles: Path, tmp_path: Path) -> None:
    code = (
        "import sys, pathlib\nfrom zdoctor.doctor.train.runtime.run_lock import lock_run\n"
        "with lock_run(pathlib.Path(sys.argv[1]), 'circles'):\n    print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == b"held\n"
        with pytest.raises(TrainError, match="Another zdoctor train"):
            go(run_with(steps=1), tiny, circles, tmp_path)
        other.communicate()
    with lock_run(tmp_path, "circles"), lock_run(tmp_path, "squares"):
        pass


def test_an_output_folder_that_cannot_be_is_said_before_anything_is_loaded(
    tiny: Path, circles: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    recorder = Recorder()
    with pytest.raises(TrainError, match="cannot be written"):
        go(run_with(), tiny, circles, tmp_path / "file" / "out", progress=recorder, fresh=True)
    assert recorder.phases == []


def test_a_stop_during_the_last_previews_is_a_stop(tiny: Path, circles: Path, tmp_path: Path) -> None:
    """Everything is saved by then, but the runs after it in the same config must not start."""
    prompt = SamplePrompt("a circle", 64, 64, 3, 2, 1.0)
    run = run_with(steps=1, disable_sampling=False, samples=(prompt,), skip_first_sample=True)

    def stop(step: int) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    result = go(run, tiny, circles, tmp_path, progress=Recorder(stop))
    assert (result.stopped, result.samples, Path(result.lora).name) == ("interrupted", (), "circles.safetensors")
    assert Path(result.lora).is_file()


def test_signals_before_the_first_step_stop_at_once() -> None:
    stop = Stop()
    with pytest.raises(KeyboardInterrupt):
        stop.ask(15, None)
    stop.gentle = True
    stop.ask(2, None)
    stop.ask(15, None)
    assert stop.is_set()
    with pytest.raises(KeyboardInterrupt):
        stop.ask(2, None)
    with interruptible() as other:
        assert not other.is_set()


def test_a_limit_leaves_room_for_a_step_and_a_save() -> None:
    stop = Stop(time.monotonic() + 1000)
    stop.step, stop.save = 50, 400
    assert not stop.is_set()
    stop.step = 101
    assert stop.is_set() and not stop.asked


def test_a_limit_of_minutes_saves_and_the_next_start_goes_on(
    tiny: Path, circles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(BEGAN, str(time.time()))
    recorder = Recorder()
    halted = go(run_with(steps=10**6), tiny, circles, tmp_path, progress=recorder, max_minutes=0.05)
    assert halted.stopped == "interrupted" and Path(halted.lora).name == f"circles_{halted.steps:09d}.safetensors"
    assert any("--max-minutes is near (measured: " in note for note in recorder.notes)
    goal = halted.steps + 2
    resumed = go(run_with(steps=goal), tiny, circles, tmp_path, max_minutes=60 * 24 * 365)
    assert (resumed.stopped, resumed.losses[: halted.steps], len(resumed.losses)) == ("finished", halted.losses, goal)


def test_a_stop_before_the_first_step_leaves_no_lora_of_zeros(tiny: Path, circles: Path, tmp_path: Path) -> None:
    """Nor of the numbers of another file, nor a state, which would hold the next start to this one's rank."""
    lora = go(run_with(steps=1), tiny, circles, tmp_path / "a").lora
    start = written(network__pretrained_lora_path=lora)
    halted = go(run_with(settings=start), tiny, circles, tmp_path / "b", max_minutes=1e-4)
    assert (halted.lora, halted.steps, halted.stopped) == ("", 0, "interrupted")
    assert not list((tmp_path / "b").glob("*.safetensors")) and not (tmp_path / "b/.circles.state.pt").exists()
    assert go(run_with(rank=4), tiny, circles, tmp_path / "b").steps == 4
    again = go(run_with(rank=4, steps=6), tiny, circles, tmp_path / "b", max_minutes=1e-4)
    assert (again.lora, again.steps) == (str(tmp_path / "b/circles_000000004.safetensors"), 4)


def test_what_a_killed_run_had_begun_to_write_is_removed(tiny: Path, circles: Path, tmp_path: Path) -> None:
    killed = (
        "import os, pathlib, sys\nfrom zdoctor.doctor.train.runtime import atomic_files\n"
        "os.fsync = lambda _: os.kill(os.getpid(), 9)\n"
        "atomic_files.write_atomic(pathlib.Path(sys.argv[1]), b'half')"
    )
    go(run_with(steps=1), tiny, circles, tmp_path)
    for file in (tmp_path / ".circles.state.pt", tmp_path / "circles.safetensors"):
        before = file.read_bytes()
        assert subprocess.run([sys.executable, "-c", killed, str(file)], check=False).returncode == -signal.SIGKILL
        assert file.read_bytes() == before
    other = tmp_path / ".mine.part"
    other.write_text("not zdoctor's")
    assert len(list(tmp_path.glob(".circles*.part"))) == 2
    for file in (tmp_path / "run.json", tmp_path / "report.html", tmp_path / "samples/circles_000000001_0.png"):
        assert subprocess.run([sys.executable, "-c", killed, str(file)], check=False).returncode == -signal.SIGKILL
    assert go(run_with(steps=2), tiny, circles, tmp_path).steps == 2
    assert list(tmp_path.rglob(".*.part")) == [other]
