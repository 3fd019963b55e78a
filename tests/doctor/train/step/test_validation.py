"""The evaluation loss is the same for the same weights, sees no trained picture, and changes no training."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from zdoctor.doctor.train import TrainError
from zdoctor.doctor.train.dataset.training_items import TrainingItem, hold_out, read_training_items

from ..patient import DATASET, Recorder, go, run_with


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "losses.jsonl").read_text().splitlines()]


def read(circles: Path, **changes: Any) -> list[TrainingItem]:
    return read_training_items(run_with(**changes).recipe, {DATASET.key: str(circles)}, 16)


def test_held_out_pictures_are_trained_on_in_no_form(circles: Path) -> None:
    from dataclasses import replace

    items = read(circles, datasets=(replace(DATASET, flip_x=True, repeats=2, resolutions=(64, 96)),))
    kept, held = hold_out(items, 2)
    assert len(held) == 2 and not any(item.flip_x for item in held)
    assert not {item.picture for item in held} & {item.picture for item in kept}
    assert len({item.picture for item in kept}) == 4
    assert hold_out(list(reversed(items)), 2)[0] == list(reversed(kept))
    assert hold_out(items, 0) == (items, [])


def test_some_pictures_must_be_left(tiny: Path, circles: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainError, match=r"have 6 different ones\. Hold out at most 5"):
        go(run_with(), tiny, circles, tmp_path, held_out=6)


def test_the_evaluation_repeats_itself_and_does_not_disturb(tiny: Path, circles: Path, tmp_path: Path) -> None:
    quiet = go(run_with(steps=4, sample_every=0), tiny, circles, tmp_path / "a", held_out=2)
    often = go(run_with(steps=4, sample_every=1, seed=7), tiny, circles, tmp_path / "b", held_out=2)
    other = go(run_with(steps=1, seed=8), tiny, circles, tmp_path / "c", held_out=2)
    assert [step for step, _ in quiet.evaluations] == [0, 4]
    assert [step for step, _ in often.evaluations] == [0, 1, 2, 3, 4]
    assert quiet.losses == often.losses
    assert (quiet.evaluations[0], quiet.evaluations[1]) == (often.evaluations[0], often.evaluations[-1])
    assert other.evaluations[0] == quiet.evaluations[0]  # the LoRA is zero, and the seed is not asked


def test_training_lowers_it(tiny: Path, circles: Path, tmp_path: Path) -> None:
    """The pictures differ by colour and place only, so what is learnt of four shows on the others."""
    result = go(run_with(steps=20, rank=16, alpha=16, sample_every=0), tiny, circles, tmp_path, held_out=2)
    (_, first), (_, last) = result.evaluations
    assert last < 0.95 * first


def test_a_run_keeps_what_it_holds_out(tiny: Path, circles: Path, tmp_path: Path) -> None:
    straight = go(run_with(steps=4), tiny, circles, tmp_path / "straight", held_out=2)
    go(run_with(steps=2), tiny, circles, tmp_path / "two", held_out=2)
    recorder = Recorder()
    resumed = go(run_with(steps=4), tiny, circles, tmp_path / "two", progress=recorder, held_out=3)
    assert resumed.losses == straight.losses and resumed.evaluations[-1] == straight.evaluations[-1]
    assert any("goes on with 2 held-out pictures; --eval 3 starts with a new run" in note for note in recorder.notes)


def test_pictures_that_come_or_go_between_starts_leave_the_others_held_out(
    tiny: Path, circles: Path, tmp_path: Path
) -> None:
    pictures = Path(shutil.copytree(circles, tmp_path / "pictures"))
    go(run_with(steps=1), tiny, pictures, tmp_path / "out", held_out=2)
    held = torch.load(tmp_path / "out/.circles.state.pt")["held"]
    for shade in range(6):
        Image.new("RGB", (64, 64), (shade, 0, 0)).save(pictures / f"new{shade}.png")
    go(run_with(steps=2), tiny, pictures, tmp_path / "out")
    assert torch.load(tmp_path / "out/.circles.state.pt")["held"] == held
    gone = next(file for file in pictures.glob("*.png") if hashlib.sha256(file.read_bytes()).hexdigest() == held[0])
    gone.unlink()
    recorder = Recorder()
    result = go(run_with(steps=3), tiny, pictures, tmp_path / "out", progress=recorder)
    assert any("1 of the 2 held-out pictures are no longer" in note for note in recorder.notes)
    assert torch.load(tmp_path / "out/.circles.state.pt")["held"] == held[1:] and len(result.evaluations) == 4


def test_the_journal_has_every_step_once_after_a_kill(tiny: Path, circles: Path, tmp_path: Path) -> None:
    run = run_with(steps=6, save_every=2, sample_every=1)

    class Killed(BaseException):
        """As abrupt as a kill, as far as the files go: nothing is saved on the way out."""

    def kill(step: int) -> None:
        if step == 5:
            raise Killed

    with pytest.raises(Killed):
        go(run, tiny, circles, tmp_path, progress=Recorder(kill), held_out=1)
    journal = tmp_path / "losses.jsonl"
    journal.write_text(journal.read_text() + '{"step": 5, "lo')
    result = go(run, tiny, circles, tmp_path)
    seen = lines(tmp_path)
    assert [line["step"] for line in seen if "loss" in line] == [1, 2, 3, 4, 5, 6]
    assert [line["step"] for line in seen if "eval_loss" in line] == [0, 1, 2, 3, 4, 5, 6]
    assert [line["loss"] for line in seen if "loss" in line] == list(result.losses)
    assert all(line["lr"] == 4e-3 and line["seconds"] > 0 for line in seen if "loss" in line)


def test_a_journal_that_is_gone_is_filled_from_the_checkpoint(tiny: Path, circles: Path, tmp_path: Path) -> None:
    go(run_with(steps=2), tiny, circles, tmp_path)
    (tmp_path / "losses.jsonl").unlink()
    result = go(run_with(steps=3), tiny, circles, tmp_path)
    assert [line["loss"] for line in lines(tmp_path)] == list(result.losses)


def test_a_new_run_begins_a_new_journal(tiny: Path, circles: Path, tmp_path: Path) -> None:
    go(run_with(steps=2), tiny, circles, tmp_path)
    (tmp_path / ".circles.state.pt").unlink()

    def stop(step: int) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    assert go(run_with(steps=3), tiny, circles, tmp_path, progress=Recorder(stop)).steps == 1
    assert [line["step"] for line in lines(tmp_path)] == [1]
