"""Devices that a config or a command names and this machine does not have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from zdoctor.doctor.train import TrainError
from zdoctor.doctor.train.device_placement import choose_placement
from zdoctor.doctor.train.job import Job
from zdoctor.doctor.train.runtime.gpu_failures import explain_gpu_failures

from .patient import Recorder, run_with


def job(written: str, asked: str | None = None, **changes: Any) -> Job:
    here = Path()
    return Job(run_with(device=written, **changes), here, {}, here, device=asked, progress=Recorder())


@pytest.mark.parametrize("name", ["gpu", "meta", "cuda:one"])
def test_a_device_that_the_runner_does_not_know(name: str) -> None:
    for one in (job(name), job("cpu", name)):
        with pytest.raises(TrainError, match=f"'{name}' is not a device; write cuda, cuda:1, mps or cpu"):
            choose_placement(one)


@pytest.mark.parametrize("name", ["cuda", "cuda:3", "mps", "xpu"])
def test_a_device_that_is_not_here(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    of_config = job(name)
    assert choose_placement(of_config).device == torch.device("cpu")
    assert isinstance(of_config.progress, Recorder)
    kind = name.partition(":")[0].upper()
    assert of_config.progress.notes == [
        f"PyTorch {torch.__version__} sees no {kind} device: the run trains on the CPU, which is slow."
    ]
    with pytest.raises(TrainError, match=f"{name} was asked for, but PyTorch .* sees no {kind} device"):
        choose_placement(job("cpu", name))


def test_a_card_that_is_there_and_cannot_be_used_ends_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after sleep: NVML counts the card, which CUDA cannot open. On the processor the run would take weeks."""

    def init() -> None:
        raise RuntimeError("CUDA unknown error - this may be due to an incorrectly set up environment, e.g. changing")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "init", init)
    with pytest.raises(TrainError, match="nvidia_uvm"), explain_gpu_failures():
        choose_placement(job("cuda"))
    assert choose_placement(job("cpu")).device.type == "cpu"


@pytest.mark.parametrize("key", ["quantization", "text_encoder_quantization"])
def test_float8_on_mps_is_refused_before_anything_is_loaded(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    with pytest.raises(TrainError, match=r"float8 weights on MPS\. Write qtype: int8"):
        choose_placement(job("mps", **{key: "qfloat8"}))
    assert choose_placement(job("mps", **{key: "int8"})).device.type == "mps"
