"""A dataset that changes while a run trains on it: what was read counts, and the next start tells of the rest."""

from __future__ import annotations

import shutil
import signal
import sys
from pathlib import Path

import pytest
from PIL import Image

from zdoctor.doctor.train import Job, TrainError, train

from ..patient import Recorder, go, run_with


@pytest.fixture
def pictures(circles: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(circles, tmp_path / "pictures"))


def test_what_was_read_is_trained_on_whatever_becomes_of_the_files(
    tiny: Path, pictures: Path, tmp_path: Path
) -> None:
    run = run_with(steps=6)
    expected = go(run, tiny, pictures, tmp_path / "calm").losses
    first, second, *_ = sorted(pictures.glob("*.png"))

    def change(step: int) -> None:
        if step == 2:
            first.unlink()
            Image.new("RGB", (64, 64), "white").save(second)
            Image.new("RGB", (64, 64), "black").save(pictures / "new.png")
            for text in pictures.glob("*.txt"):
                text.write_text("something else", encoding="utf-8")

    assert go(run, tiny, pictures, tmp_path / "changed", progress=Recorder(change)).losses == expected
    progress = Recorder()
    again = go(run_with(steps=7), tiny, pictures, tmp_path / "changed", progress=progress)
    assert again.steps == 7 and any("new" in note and "gone" in note for note in progress.notes), progress.notes


def test_a_cache_that_goes_under_the_run_ends_it_in_words(tiny: Path, pictures: Path, tmp_path: Path) -> None:
    def lose(step: int) -> None:
        if step == 3:
            shutil.rmtree(tmp_path / "out" / ".cache")

    run = run_with(steps=6, checkpoints={"every": 2, "dtype": "float32"})
    with pytest.raises(TrainError, match=r"saved at step 3; the same command goes on"):
        go(run, tiny, pictures, tmp_path / "out", progress=Recorder(lose))
    assert (tmp_path / "out" / "circles_000000003.safetensors").is_file()
    assert go(run, tiny, pictures, tmp_path / "out").losses == go(run, tiny, pictures, tmp_path / "calm").losses


@pytest.mark.skipif(sys.platform == "win32", reason="no limit on the size of a file there")
def test_a_disk_that_fills_up_while_captions_are_encoded_leaves_what_was_saved(
    tiny: Path, pictures: Path, tmp_path: Path
) -> None:
    """A limit on files stands for the disk: the caption of a new picture finds no room, an earlier start is whole."""
    import resource

    output = tmp_path / "out"
    first = go(run_with(steps=2), tiny, pictures, output)
    kept = {file: file.read_bytes() for file in (Path(first.lora), output / ".circles.state.pt")}
    Image.new("RGB", (160, 128), "navy").save(pictures / "new.png")
    (pictures / "new.txt").write_text("a caption that nothing has seen", encoding="utf-8")
    before, former = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1500, before[1]))
    try:
        with pytest.raises(TrainError, match=r"\.cache.* cannot be written: File too large"):
            train(Job(run_with(steps=4), tiny, {"datasets/0": str(pictures)}, output, device="cpu"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, former)
    assert {file: file.read_bytes() for file in kept} == kept
    assert not list((output / ".cache").glob("*.part"))
    assert go(run_with(steps=4), tiny, pictures, output).steps == 4
