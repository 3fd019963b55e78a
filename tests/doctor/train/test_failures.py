"""Machines that can no more, in words instead of a traceback."""

from __future__ import annotations

import pytest
import torch

from zdoctor.doctor.train import TrainError
from zdoctor.doctor.train.failures import explained


def test_memory_that_runs_out() -> None:
    with pytest.raises(TrainError, match=r"memory of this computer ran out \(.*allocat"), explained():
        torch.empty(1 << 60, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB."), "Lower the resolution"),
        (torch.AcceleratorError("CUDA error: unspecified launch failure\nCUDA kernel errors might"), "nvidia-smi"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`"), "nvidia-smi"),
        (MemoryError(), "ran out"),
    ],
)
def test_each_says_what_to_do(error: Exception, words: str) -> None:
    with pytest.raises(TrainError, match=words) as told, explained():
        raise error
    assert "\n" not in str(told.value)


def test_bugs_stay_bugs() -> None:
    with pytest.raises(RuntimeError, match="size of tensor"), explained():
        torch.ones(2) + torch.ones(3)
