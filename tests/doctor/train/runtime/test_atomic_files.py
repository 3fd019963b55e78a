"""A file is wholly there or not changed, also when the disk fills up in the middle of a checkpoint."""

from __future__ import annotations

import errno
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from zdoctor.doctor.files import durable
from zdoctor.doctor.train import TrainError
from zdoctor.doctor.train.output.checkpoint_files import prune_checkpoints, read_state, write_state
from zdoctor.doctor.train.output.loss_log import LossLog
from zdoctor.doctor.train.runtime.atomic_files import atomic_file
from zdoctor.doctor.train.step.trainer import TrainingState
from zdoctor.tests.disk import forced

STATE = TrainingState({"rank": "8"}, 7, 3, [0.5, 0.25, 0.125], {"a": torch.arange(5.0)}, {"state": {}}, None)


@pytest.mark.skipif(sys.platform == "win32", reason="no limit on the size of a file there")
def test_a_disk_that_fills_up_leaves_the_last_good_checkpoint(tmp_path: Path) -> None:
    import resource
    import signal

    file = tmp_path / "state.pt"
    write_state(file, STATE)
    larger = replace(STATE, step=4, lora={"a": torch.zeros(3 << 20)})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    former = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        with pytest.raises(TrainError, match=r"state\.pt cannot be written: File too large"):
            write_state(file, larger)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, former)
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".json"] == ["state.pt"]
    found = read_state(file, {"rank": "8"})
    assert found is not None and found.step == 3 and torch.equal(found.lora["a"], STATE.lora["a"])
    write_state(file, larger)
    again = read_state(file, {"rank": "8"})
    assert again is not None and again.step == 4


def test_a_full_disk_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(TrainError, match=r"No space left on device\. Make room there"), atomic_file(tmp_path / "a"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_journal_on_a_full_disk_says_so_and_hides_nothing_when_it_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be written is tried once more when a stream is closed, while another error is on its way."""
    monkeypatch.setattr(os, "fsync", forced)
    journal = LossLog(tmp_path / "losses.jsonl", [])
    journal.stream.close()
    journal.stream = Path("/dev/full").open("a", encoding="utf-8")  # noqa: SIM115
    with pytest.raises(TrainError, match=r"losses\.jsonl cannot be written: No space left on device"):
        journal.step(1, 0.5, 1e-4, 2.0)
    with pytest.raises(TrainError, match=r"losses\.jsonl cannot be written"):  # this device knows no fsync
        journal.sync()
    journal.close()


def test_a_file_that_is_being_read_is_replaced_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Windows has it; here nothing hinders a file from being replaced."""
    plain, left = Path.replace, [2]

    def hindered(self: Path, target: Path) -> Path:
        if left[0]:
            left[0] -= 1
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return plain(self, target)

    monkeypatch.setattr(Path, "replace", hindered)
    monkeypatch.setattr(durable, "TRIES", 3)
    monkeypatch.setattr(durable, "TRY_SECONDS", 0.0)
    with atomic_file(tmp_path / "a") as stream:
        stream.write(b"new")
    assert (tmp_path / "a").read_bytes() == b"new" and len(list(tmp_path.iterdir())) == 1
    left[0] = 3
    with pytest.raises(TrainError, match="Permission denied"), atomic_file(tmp_path / "a") as stream:
        stream.write(b"newer")
    assert (tmp_path / "a").read_bytes() == b"new" and len(list(tmp_path.iterdir())) == 1


def test_saves_that_cannot_be_removed_stay(tmp_path: Path) -> None:
    (tmp_path / "run_000000001.safetensors").mkdir()  # like a file that another program has open on Windows
    for step in (2, 3, 4):
        (tmp_path / f"run_{step:09d}.safetensors").write_bytes(b"")
    prune_checkpoints(tmp_path, "run", 2)
    assert sorted(int(path.stem[-9:]) for path in tmp_path.iterdir()) == [1, 3, 4]
