"""Machines that can no more, in words instead of a traceback."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from zdoctor.doctor.train import TrainError
from zdoctor.doctor.train.components import text_encoder
from zdoctor.doctor.train.components.vae import Vae
from zdoctor.doctor.train.encode.encoding_cache import EncodingCache
from zdoctor.doctor.train.encode.text_embeddings import TextEmbeddings
from zdoctor.doctor.train.families import zimage
from zdoctor.doctor.train.runtime.gpu_failures import (
    explain_gpu_failures,
    is_gpu_lost,
    memory_savings,
    unless_out_of_memory,
)
from zdoctor.doctor.train.settings.refuse import refuse

from ..patient import Recorder, run_with, written


def test_memory_that_runs_out() -> None:
    with pytest.raises(TrainError, match=r"memory of this computer ran out \(.*allocat"), explain_gpu_failures():
        torch.empty(1 << 60, dtype=torch.uint8)


# What PyTorch's allocator says where another process has taken the card (c10/cuda/CUDACachingAllocator.cpp).
TAKEN = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.64 GiB of which 1.02 GiB is "
    "free. Process 4242 has 20.50 GiB memory in use. Including non-PyTorch memory, this process has 2.12 GiB memory "
    "in use. Of the allocated memory 1.50 GiB is allocated by PyTorch, and 20.00 MiB is reserved but unallocated."
)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB."), "Lower the resolution"),
        (torch.AcceleratorError("CUDA error: out of memory\nCUDA kernel errors might"), "Lower the resolution"),
        (
            RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
            "Lower the resol",
        ),
        (RuntimeError("MPS backend out of memory (MPS allocated: 17.62 GB, other"), "GPU ran out of memory"),
        (RuntimeError("Invalid buffer size: 12.25 GiB"), "GPU ran out of memory"),
        (torch.OutOfMemoryError(TAKEN), r"Process 4242 holds 20\.5 GiB of the card: end it"),
        (torch.OutOfMemoryError(TAKEN.replace("20.50 GiB", "310.00 MiB")), "Lower the resolution"),  # a desktop
        (torch.OutOfMemoryError(TAKEN.replace("this process", "Process 17")), "Lower the resolution"),
        (MemoryError(), "ran out"),
    ],
)
def test_each_says_what_to_do(error: Exception, words: str) -> None:
    with pytest.raises(TrainError, match=words) as told, explain_gpu_failures():
        raise error
    assert "\n" not in str(told.value)


BLAMES_A_CALL = "\nCUDA kernel errors might be asynchronously reported at some other API call"
OF_CARDS = [
    ("CUDA error: unspecified launch failure", "Xid 79"),
    ("CUDA error: unknown error", "Xid 79"),
    ("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx( handle, opa, opb)`", "Xid 79"),
    ("CUDA error: no kernel image is available for execution on the device", "zdoctor explain PKG002"),
    ("CUDA error: device kernel image is invalid", "zdoctor explain PKG003"),
    ("CUDA error: the provided PTX was compiled with an unsupported toolchain.", "zdoctor explain PKG003"),
    ("CUDA error: device-side assert triggered", "index was out of range"),
    ("CUDA error: an illegal memory access was encountered", "overclock"),
    ("CUDA error: misaligned address", "overclock"),
    ("Triton Error [CUDA]: an illegal memory access was encountered", "overclock"),
    ("CUDA error: CUDA-capable device(s) is/are busy or unavailable", "Exclusive Process"),
    ("CUDA error: uncorrectable ECC error encountered", "memory of the card"),
    ("CUDA error: the launch timed out and was terminated", "its screen"),
    ("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`", "its memory is full"),
    ("CUDA unknown error - this may be due to an incorrectly set up environment, e.g.", "nvidia_uvm"),
    ("The NVIDIA driver on your system is too old (found version 11040).", "zdoctor explain PKG003"),
    ("CUDA error: invalid argument", "nvidia-smi"),  # whatever else CUDA says
    ("HIP error: invalid device function", "nvidia-smi"),
]


@pytest.mark.parametrize(("words", "told"), OF_CARDS)
@pytest.mark.parametrize("kind", [RuntimeError, torch.AcceleratorError])
def test_each_failure_of_a_card_has_its_words(words: str, told: str, kind: type[Exception]) -> None:
    with pytest.raises(TrainError) as error, explain_gpu_failures():
        raise kind(words + BLAMES_A_CALL)
    text = str(error.value)
    assert text.startswith(f"The GPU failed ({words}; test_gpu_failures.py, line ") and told in text
    others = {other for _, other in OF_CARDS} - {told, "nvidia-smi", "Xid 79"}
    assert not [other for other in others if other in text]
    assert is_gpu_lost(kind(words))


def test_a_failure_of_cudnn_leaves_the_card_as_it_was() -> None:
    error = RuntimeError("cuDNN error: CUDNN_STATUS_NOT_INITIALIZED")
    with pytest.raises(TrainError, match="its memory is full"), explain_gpu_failures():
        raise error
    assert not is_gpu_lost(error)


def test_bugs_stay_bugs() -> None:
    with pytest.raises(RuntimeError, match="size of tensor"), explain_gpu_failures():
        torch.add(torch.ones(2), torch.ones(3))


def full() -> torch.OutOfMemoryError:
    return torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")


@pytest.mark.parametrize(
    ("settings", "changes", "error", "offered"),
    [
        ({}, {}, full(), True),
        ({}, {}, MemoryError(), False),  # it would take more of what ran out
        ({}, {"gradient_checkpointing": False}, full(), False),
        ({"model__compile": True}, {}, full(), False),
        ({"train__gradient_checkpointing_interval": 2}, {}, full(), False),
        ({"model__layer_offloading": True}, {}, full(), False),
        ({}, {"device": "mps"}, full(), False),
    ],
)
def test_only_what_the_runner_takes_is_offered(
    settings: dict[str, Any], changes: dict[str, Any], error: Exception, offered: bool
) -> None:
    run = run_with(**{"device": "cuda", "settings": written(**settings), **changes})
    assert ("layer_offloading: true" in memory_savings(run, error)) == offered
    assert not refuse(run)
    more = run_with(**{**changes, "settings": written(**{**settings, "model__layer_offloading": True})})
    assert not offered or not refuse(more)


def test_nothing_keeps_what_did_not_fit() -> None:
    taken: list[weakref.ref[torch.Tensor]] = []

    def work() -> int:
        part = torch.ones(3)
        taken.append(weakref.ref(part))
        raise full()

    assert unless_out_of_memory(work) is None and taken[0]() is None
    assert unless_out_of_memory(lambda: 3) == 3
    with pytest.raises(RuntimeError, match="size of tensor"):
        unless_out_of_memory(lambda: torch.ones(2) + torch.ones(3))


def test_a_model_that_does_not_fit_is_whole_on_the_cpu() -> None:
    class Large(nn.Linear):
        def to(self, *_: Any, **__: Any) -> Any:
            raise full()

    model = Large(2, 3)
    vae = Vae(model, 8)
    vae.to(torch.device("cuda"))
    assert vae.device.type == "cpu"


def test_prompts_go_to_the_cpu_where_the_text_encoder_does_not_fit(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of the prompts, too; two text encoders are never in memory."""
    made: list[weakref.ref[Any]] = []
    load: Any
    plain, load = zimage.text_encoder, text_encoder.load_text_encoder

    def loaded(*args: Any) -> Any:
        assert all(model() is None for model in made)
        model = load(*args)
        made.append(weakref.ref(model))
        return model

    def encoder(folders: Any, kind: Any, dtype: Any, device: torch.device, *, masked: bool) -> Any:
        encode = plain(folders, kind, dtype, torch.device("cpu"), masked=masked)

        def some(text: str) -> Any:
            if device.type == "cuda" and text == "two":
                raise full()
            return encode(text)

        return some

    monkeypatch.setattr(zimage, "load_text_encoder", loaded)
    monkeypatch.setattr(zimage, "text_encoder", encoder)
    texts = TextEmbeddings(EncodingCache(tmp_path), zimage, {n: tiny / n for n in zimage.TEXT_PARTS}, torch.float32)
    told = Recorder()
    assert texts.prepare(["one", "two"], torch.device("cuda"), told) == 2
    assert len(made) == 2 and "does not fit on the GPU" in told.phases[-1]
    assert texts.get("one")["states"].isfinite().all() and texts.get("two")["states"].isfinite().all()
