"""Every exception that the libraries raise while they load, raised for real, is explained: cause, and what to do."""

from __future__ import annotations

import logging
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from zdoctor.doctor.crash import explain
from zdoctor.tests.hub_server import HubServer

from . import loading, loading_models
from .loading import REPO, Case
from .test_cases import SIGNATURES

# A word of the answer, for those that are near to another.
WORDS = {
    "GatedRepoError, 401": "no token was sent",
    "GatedRepoError, 403": "has not accepted",
    "RepositoryNotFoundError, 404": "no model of that name",
    "RevisionNotFoundError": "no such branch",
    "RemoteEntryNotFoundError": "no file of that name",
    "HfHubHTTPError, 429": "too many requests",
    "HfHubHTTPError, 500": "error of its own",
    "HfHubHTTPError, 503": "error of its own",
    "HfHubHTTPError, 403": "refused the request (403)",
    "LocalEntryNotFoundError, no line": "could not be reached",
    "UnpicklingError, a pointer of git-lfs": "git-lfs pointer",
    "UnpicklingError, a web page": "web page",
    "an unknown kind": "transformers does not know",
    "no kind": "without model_type",
    "no bitsandbytes": "bitsandbytes",
    "another rank": "another rank",
}
GROUPS = {
    "huggingface_hub": loading.HUB,
    "safetensors": loading.SAFETENSORS,
    "torch": loading.TORCH,
    "transformers": loading_models.TRANSFORMERS,
    "diffusers": loading_models.DIFFUSERS,
    "accelerate": loading_models.ACCELERATE,
    "peft": loading_models.PEFT,
}


@pytest.mark.parametrize("library", GROUPS)
def test_what_a_library_raises_is_explained(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder_of: Callable[[str], Path]
) -> None:
    pytest.importorskip(library)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    for name, case in GROUPS[library].items():
        log = _log(case, folder_of(name))
        seen = explain(log, SIGNATURES)
        assert seen.failure is not None and (seen.known is not None or seen.rules), f"{name}\n{log}"
        if name in WORDS:
            told = seen.known and f"{seen.known.cause} {seen.known.do}"
            assert told and WORDS[name] in told, f"{name}: {told}\n{log}"


@pytest.fixture
def folder_of(tmp_path: Path) -> Callable[[str], Path]:
    """A folder of its own for each name."""

    def made(name: str) -> Path:
        folder = tmp_path / name.replace(" ", "_").replace(",", "")
        folder.mkdir()
        return folder

    return made


def _log(case: Case, folder: Path) -> str:
    with HubServer({REPO: {"config.json": b"{}"}}) as hub, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            with pytest.raises(Exception) as caught:
                case(folder, hub)
        finally:
            logging.disable(logging.NOTSET)
    return "".join(traceback.format_exception(caught.type, caught.value, caught.tb))


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has",
            "MEM001",
        ),
        ("torch.AcceleratorError: CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation' in", "pinned"),
        (
            "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has",
            "MEM001",
        ),
        ("RuntimeError: MPS backend out of memory (MPS allocated: 8.0 GB, other allocations: 1 GB)", "MEM001"),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "MEM001"),
        ("RuntimeError: Could not load bitsandbytes native library: libcusparse.so.11: cannot open", "bitsandbytes"),
        (
            "RuntimeError: CUDA Setup failed despite CUDA being available. Please run",
            "bitsandbytes",
        ),
    ],
)
def test_what_takes_a_card_is_explained_too(error: str, word: str) -> None:
    """By the words of torch's allocator (c10/cuda/CUDACachingAllocator.cpp) and of bitsandbytes (cextension.py)."""
    seen = explain(
        f'Traceback (most recent call last):\n  File "/x/train.py", line 3, in f\n    g()\n{error}\n', SIGNATURES
    )
    assert seen.known is not None and word in f"{seen.known.cause} {seen.known.do} {seen.rules}"
