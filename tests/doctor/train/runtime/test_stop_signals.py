"""A signal ends what is being loaded, whatever the libraries make of it."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from zdoctor.doctor.train.runtime.stop_signals import interruptible

from ..patient import Recorder, go, run_with


def test_an_interrupt_that_an_import_turned_into_an_error_is_one() -> None:
    """Interrupted amid numpy's C code, PyTorch tries it again: "cannot load module more than once per process"."""
    with pytest.raises(KeyboardInterrupt), interruptible():
        with suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        raise ImportError("cannot load module more than once per process")


def test_one_that_was_swallowed_is_heeded_afterwards() -> None:
    with pytest.raises(KeyboardInterrupt), interruptible() as stop:
        with suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
        stop.heed()


def test_one_that_was_swallowed_while_the_model_was_loaded_begins_no_training(
    tiny: Path, circles: Path, tmp_path: Path
) -> None:
    class Swallows(Recorder):
        def phase(self, text: str) -> None:
            super().phase(text)
            if text.startswith("Loading the transformer"):
                with suppress(KeyboardInterrupt):
                    signal.raise_signal(signal.SIGINT)

    recorder = Swallows()
    with pytest.raises(KeyboardInterrupt):
        go(run_with(), tiny, circles, tmp_path, progress=recorder)
    assert recorder.phases[-1].startswith("Loading the transformer") and recorder.steps == []


def test_errors_of_their_own_stay_what_they_are() -> None:
    with pytest.raises(ValueError, match="x"), interruptible() as stop:
        stop.heed()
        raise ValueError("x")


def test_what_a_first_ctrl_c_does_is_said_at_once(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step may take minutes; of several processes one says it."""
    said = []
    for rank in ("0", "1"):
        monkeypatch.setenv("LOCAL_RANK", rank)
        with interruptible() as stop:
            stop.gentle = True
            for _ in range(2):
                signal.raise_signal(signal.SIGTERM)
            assert stop.is_set()
        said.append(capfd.readouterr().err)
    assert said[0].count("the step that runs is finished, then all is saved") == 1 and said[1] == ""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGHUP there")
def test_a_terminal_that_is_closed_saves_the_run(tiny: Path, circles: Path, tmp_path: Path) -> None:
    def close(step: int) -> None:
        if step == 2:
            signal.raise_signal(signal.SIGHUP)

    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # these tests may run under nohup themselves
    try:
        result = go(run_with(), tiny, circles, tmp_path, progress=Recorder(close))
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (result.stopped, result.steps) == ("interrupted", 2) and Path(result.lora).is_file()


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGHUP there")
def test_under_nohup_a_run_goes_on() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruptible() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert not stop.raised and not stop.asked
    finally:
        signal.signal(signal.SIGHUP, before)
