"""What fails amid a run: the finished steps are saved where they can be, and the error says from where it goes on."""

from __future__ import annotations

import errno
import os
import re
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from zdoctor.doctor.model.recipe import SamplePrompt
from zdoctor.doctor.train import TrainError
from zdoctor.doctor.train.output.checkpoint_files import write_state
from zdoctor.doctor.train.runtime.atomic_files import atomic_file
from zdoctor.doctor.train.sampling import preview_samples as preview
from zdoctor.doctor.train.step.batch_loss import BatchLoss
from zdoctor.doctor.train.step.optimizer import optimizer_step
from zdoctor.doctor.train.step.trainer import Trainer

from .patient import Recorder, go, run_with

WRITER = "zdoctor.doctor.train.training_loop.write_state"
SAMPLE = SamplePrompt("a circle", 64, 64, 3, 2, 1.0)


def full() -> torch.OutOfMemoryError:
    return torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")


def following(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Holds how many steps are done, from now on."""
    advance, done = Trainer.advance, [0]

    def advanced(self: Trainer) -> float:
        done[0] = self.step
        loss = advance(self)
        done[0] = self.step
        return loss

    monkeypatch.setattr(Trainer, "advance", advanced)
    return done


def fails_at(monkeypatch: pytest.MonkeyPatch, step: int, call: int, fail: Callable[[Tensor], Any]) -> None:
    """From now on `fail` gets the answer of the model, as often as it is asked within step `step`, from `call` on."""
    whole, calls, done = BatchLoss.predict, [], following(monkeypatch)

    def predict(self: BatchLoss, *inputs: Any) -> Tensor:
        guess = whole(self, *inputs)
        if done[0] == step - 1:
            calls.append(step)
            if len(calls) >= call:
                fail(guess)
        return guess

    monkeypatch.setattr(BatchLoss, "predict", predict)


def same(one: str | None, other: str | None) -> bool:
    assert one is not None and other is not None
    a, b = load_file(one), load_file(other)
    return all(torch.equal(a[key], b[key]) for key in a)


def test_a_step_that_needs_more_memory_than_there_is_loses_no_step_before_it(
    tiny: Path, circles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The allocator's own error. Nothing of the failed step is alive while the run is saved."""
    run = run_with(steps=5, gradient_accumulation=2, use_ema=True, gradient_checkpointing=False)
    straight = go(run, tiny, circles, tmp_path / "straight")
    alive: list[weakref.ref[Tensor]] = []

    def fail(guess: Tensor) -> None:
        alive.append(weakref.ref(guess))
        torch.empty(1 << 60, dtype=torch.uint8)

    def write(*words: Any) -> None:
        assert alive and alive[0]() is None
        write_state(*words)

    with monkeypatch.context() as patch:
        fails_at(patch, step=4, call=2, fail=fail)
        patch.setattr(WRITER, write)
        with pytest.raises(TrainError, match="memory of this computer ran out") as told:
            go(run, tiny, circles, tmp_path / "halted")
    assert "batch_size: 1 with gradient_accumulation: 4" in str(told.value)
    assert "gradient_checkpointing: true" in str(told.value) and "qtype" not in str(told.value)
    assert "The run is saved at step 3; the same command goes on from there." in str(told.value)
    assert (tmp_path / "halted/circles_000000003.safetensors").is_file()
    assert "Ended by an error at step 3" in (tmp_path / "halted/report.html").read_text()
    resumed = go(run, tiny, circles, tmp_path / "halted")
    assert resumed.losses == straight.losses and same(resumed.lora, straight.lora)


def test_what_fails_amid_the_update_is_not_saved(
    tiny: Path, circles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def half(optimizer: torch.optim.Optimizer) -> None:
        calls.append(1)
        optimizer_step(optimizer)
        if len(calls) == 4:
            raise full()

    monkeypatch.setattr("zdoctor.doctor.train.step.trainer.optimizer_step", half)
    with pytest.raises(TrainError, match=r"GPU ran out of memory.*was changing the weights.*not saved") as told:
        go(run_with(steps=6, save_every=2), tiny, circles, tmp_path)
    last = tmp_path / "circles_000000002.safetensors"
    assert f"The last good save is of step 2 ({last}); the same command goes on from there." in str(told.value)
    assert [path.name for path in tmp_path.glob("*.safetensors")] == [last.name]
    recorder = Recorder()
    assert go(run_with(steps=6), tiny, circles, tmp_path, progress=recorder).steps == 6
    assert recorder.steps == [3, 4, 5, 6]


@pytest.mark.parametrize("place", ["painting", "evaluating"])
def test_what_fails_between_two_steps_loses_none(
    tiny: Path, circles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise full()

    if place == "painting":
        monkeypatch.setattr(preview, "denoise", fail)
    else:
        done = following(monkeypatch)
        monkeypatch.setattr(BatchLoss, "unweighted_losses", lambda *_: fail() if done[0] else torch.zeros(1))
    run = run_with(steps=4, sample_every=2, disable_sampling=False, samples=(SAMPLE,), skip_first_sample=True)
    with pytest.raises(TrainError, match=r"GPU ran out of memory.*The run is saved at step 2; the same command"):
        go(run, tiny, circles, tmp_path, held_out=1)


def test_a_second_ctrl_c_says_which_step_is_saved(
    tiny: Path, circles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(_: Tensor) -> Any:
        raise KeyboardInterrupt

    fails_at(monkeypatch, 4, 1, stopped)
    with pytest.raises(KeyboardInterrupt, match=r"The last good save is of step 2 .*; the same command goes on"):
        go(run_with(steps=6, save_every=2), tiny, circles, tmp_path)


def test_the_report_calls_a_run_finished_before_its_last_previews(
    tiny: Path, circles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They take minutes; the next start finds the LoRA and trains nothing, and would not write the report again."""

    def stopped(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(preview, "denoise", stopped)
    run = run_with(steps=2, save_every=1, disable_sampling=False, samples=(SAMPLE,), skip_first_sample=True)
    with pytest.raises(KeyboardInterrupt, match="All 2 steps are done and saved"):
        go(run, tiny, circles, tmp_path)
    assert "Finished at step 2 of 2" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_lora_that_is_said_to_be_there_is_there(
    tiny: Path, circles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a limit of minutes the state is saved after the first step, which may be the last one, without a LoRA."""

    def fail() -> Any:
        raise full()

    done = following(monkeypatch)
    monkeypatch.setattr(BatchLoss, "unweighted_losses", lambda *_: fail() if done[0] else torch.zeros(1))
    lora = tmp_path / "circles.safetensors"
    with pytest.raises(TrainError, match=r"All 1 steps are done and saved in (.*)\.$") as told:
        go(run_with(steps=1), tiny, circles, tmp_path, held_out=1, max_minutes=1e6)
    assert str(lora) in str(told.value) and lora.is_file()


def test_a_save_that_fails_too_does_not_hide_what_failed_first(
    tiny: Path, circles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(guess: Tensor) -> None:
        monkeypatch.setattr(WRITER, write)
        raise full()

    def write(*_: Any) -> None:
        raise TrainError("x cannot be written: No space left on device.")

    fails_at(monkeypatch, step=4, call=1, fail=fail)
    with pytest.raises(
        TrainError, match=r"GPU ran out of memory.*Step 3 could not be saved: x .* device\. The last g"
    ):
        go(run_with(steps=4, save_every=2), tiny, circles, tmp_path)


def test_nothing_is_said_to_be_saved_where_nothing_was_learnt(
    tiny: Path, circles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(guess: Tensor) -> None:
        raise full()

    fails_at(monkeypatch, step=1, call=1, fail=fail)
    with pytest.raises(TrainError, match=r"qtype: int8.*No step was done, so nothing is saved\."):
        go(run_with(), tiny, circles, tmp_path)
    assert not list(tmp_path.glob("*.safetensors")) and not (tmp_path / ".circles.state.pt").exists()


def test_a_bug_stays_one_and_loses_no_step(
    tiny: Path, circles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails_at(monkeypatch, step=3, call=1, fail=lambda guess: guess + torch.ones(3, 5))
    recorder = Recorder()
    with pytest.raises(RuntimeError, match="size of tensor"):
        go(run_with(), tiny, circles, tmp_path, progress=recorder)
    assert "The run is saved at step 2; the same command goes on from there." in recorder.notes
    monkeypatch.undo()
    assert go(run_with(), tiny, circles, tmp_path).losses == go(run_with(), tiny, circles, tmp_path / "b").losses


def test_what_a_failed_card_holds_is_not_saved(
    tiny: Path, circles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its errors come late: what it made in the step before may be what failed."""

    def fail(guess: Tensor) -> None:
        raise torch.AcceleratorError("CUDA error: unspecified launch failure\nCUDA kernel errors might")

    fails_at(monkeypatch, step=4, call=1, fail=fail)
    with pytest.raises(
        TrainError, match=r"nvidia-smi.*What the card holds cannot be trusted.*good save is of step 2"
    ):
        go(run_with(save_every=2), tiny, circles, tmp_path / "newer")
    with pytest.raises(
        TrainError, match=r"nvidia-smi.*The run is saved at step 3; the same command goes on from there"
    ):
        go(run_with(save_every=3), tiny, circles, tmp_path / "saved")


def test_a_disk_that_fills_between_lora_and_state_leaves_the_lora_and_says_so(
    tiny: Path, circles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(file: Path, _: object) -> None:
        with atomic_file(file):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(WRITER, full_disk)
    with pytest.raises(TrainError, match=r"Step 2 is saved as LoRA alone \((.*safetensors)\)") as told:
        go(run_with(save_every=2), tiny, circles, tmp_path / "out")
    file = re.search(r"alone \((.*?)\)", str(told.value))
    assert file is not None and load_file(file[1])
