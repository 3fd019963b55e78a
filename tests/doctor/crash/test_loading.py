"""Every exception that the libraries raise while they load, raised for real, is explained: cause, and what to do."""

from __future__ import annotations

import logging
import re
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
from .raised import sites
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
    "another rank": "has rank 2, and the settings say 4",
}
# Classes that a library's source raises on the way of loading, which no file, setting or machine here brings out.
# Where the reason is a card or a package, test_raised has their words.
NOT_BY_FILES = {
    "huggingface_hub": {
        "DryRunError": "hf download --dry-run",
        "OIDCError": "logs in as a build machine",
        "OSError": "a file that cannot be put back after another error, which is told",
        "RuntimeError": "ranges of a request, which the client itself makes",
    },
    "torch": {
        "AssertionError": "a pickle that is made by hand",
        "AttributeError": "a model's own code",
        "KeyError": "a model's own code",
        "ValueError": "arguments of the call",
    },
    "transformers": {
        "AttributeError": "a model's own code",
        "Exception": "a SentencePiece file of another algorithm than its tokenizer's",
        "NotImplementedError": "quantizing for language models, without a card",
        "SkipParameters": "never leaves the library",
    },
    "diffusers": {
        "Exception": "a config's items are set by code",
        "RuntimeError": "quantizing without a card, or with an old torchao",
        "SingleFileComponentError": "below, by its words",
    },
    "peft": {
        "AttributeError": "a layer is merged and parted again by code",
        "ImportError": "an old torchao or gptqmodel",
        "OSError": "a class that is called in the place of its from_pretrained",
    },
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
    raised: set[str] = set()
    for name, case in GROUPS[library].items():
        log = _log(case, folder_of(name), raised)
        seen = explain(log, SIGNATURES)
        assert seen.failure is not None and (seen.known is not None or seen.rules), f"{name}\n{log}"
        if name in WORDS:
            told = seen.known and f"{seen.known.cause} {seen.known.do}"
            assert told and WORDS[name] in told, f"{name}: {told}\n{log}"
    of_loading = {site.error for site in sites(library)}
    assert of_loading - raised == NOT_BY_FILES.get(library, {}).keys(), f"{library}: {of_loading - raised}"


@pytest.fixture
def folder_of(tmp_path: Path) -> Callable[[str], Path]:
    """A folder of its own for each name."""

    def made(name: str) -> Path:
        folder = tmp_path / name.replace(" ", "_").replace(",", "")
        folder.mkdir()
        return folder

    return made


def _log(case: Case, folder: Path, raised: set[str]) -> str:
    """The traceback of a case; the names of what it raises, and of what that came from, are added."""
    with HubServer({REPO: {"config.json": b"{}"}}) as hub, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            with pytest.raises(Exception) as caught:
                case(folder, hub)
        finally:
            logging.disable(logging.NOTSET)
    error: BaseException | None = caught.value
    while error is not None:
        raised.add(type(error).__name__)
        error = error.__cause__ or error.__context__
    return "".join(traceback.format_exception(caught.type, caught.value, caught.tb))


HUB = "huggingface_hub.errors."
# What takes a card, another machine or a state that cannot be made here, in the libraries' own words: of torch 2.13.0
# (c10/cuda/CUDACachingAllocator.cpp, c10/core/AllocatorConfig.h, aten/src/ATen/cudnn), bitsandbytes at 95f9af30
# (cextension.py), huggingface_hub 2.4.0 (utils/_http.py, hf_api.py), diffusers 0.42.1 (loaders/single_file.py).
BY_WORDS = (
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has", "MEM001"),
    ("torch.AcceleratorError: CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation' in", "pinned"),
    ("torch.AcceleratorError: HIP error: out of memory\nSearch for `hipErrorOutOfMemory' in", "pinned"),
    ("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has", "MEM001"),
    ("RuntimeError: MPS backend out of memory (MPS allocated: 8.0 GB, other allocations: 1 GB)", "MEM001"),
    ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "MEM001"),
    ("RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED", "MEM001"),
    ("RuntimeError: CUDA driver error: out of memory", "MEM001"),
    ("RuntimeError: Unrecognized CachingAllocator option: expandable_segment", "PYTORCH_CUDA_ALLOC_CONF"),
    ('RuntimeError: !handles_.at(i) INTERNAL ASSERT FAILED at "/c10/cuda/CUDACachingAllocator.cpp":447', "own store"),
    ("RuntimeError: Could not load bitsandbytes native library: libcusparse.so.11: cannot open", "bitsandbytes"),
    ("RuntimeError: CUDA Setup failed despite CUDA being available. Please run", "bitsandbytes"),
    ("RuntimeError: Attempted to use bitsandbytes native library functionality but it's not available.", "library"),
    ("RuntimeError: \n🚨 CUDA SETUP ERROR: Missing dependency: libnvJitLink.so.13 🚨", "bitsandbytes was built with"),
    ("RuntimeError: \n🚨 CUDA VERSION MISMATCH 🚨\nRequested CUDA version:          13.3", "bitsandbytes"),
    ("RuntimeError: Method 'cget_managed_ptr' not available in CPU-only version of bitsandbytes.", "sees no card"),
    ("RuntimeError: No compatible CUDA binary found at /x/libbitsandbytes_cuda133.so", "bitsandbytes"),
    ("RuntimeError: BNB_CUDA_VERSION='12.4': value must be digits only (e.g. '124' for 12.4).", "BNB_CUDA_VERSION"),
    ("RuntimeError: bitsandbytes: failed to load backend bitsandbytes_x: no", "backend"),
    (f"{HUB}DisabledRepoError: 403 Client Error.\n\nAccess to this resource is disabled.", "closed"),
    (f"{HUB}RevisionResolutionError: Cannot resolve revision 'main' for model 'a/b': HF_HUB_OFFLINE and no matching "
     "entry was found in the local cache ('/x').", "HUB006"),
    (f"{HUB}XetDownloadError: Task cancelled; possible runtime shutdown", "Xet"),
    ("SingleFileComponentError: Failed to load CLIPTextModel. Weights for this component appear to be missing in the "
     "checkpoint.", "MDL003"),
)  # fmt: skip
# Of huggingface_hub's: raised by what loads no model (the command line, jobs, buckets, inference, sandboxes, uploads,
# reports about caches and safetensors' headers), or never but as one of those below it.
ELSEWHERE = frozenset(
    re.findall(
        r"\w+",
        """
    BucketBatchError BucketNotFoundError CLIError CLIExtensionInstallError CacheNotFound
    CachedRepoTreeNotFoundError ConfirmationError CorruptedCacheException DDUFError DDUFExportError
    DeviceCodeError DryRunError EntryNotFoundError FileDuplicationError GenerationError HfUriError
    IncompleteGenerationError InferenceEndpointError InferenceEndpointTimeoutError InferenceTimeoutError
    JobNotFoundError NotASafetensorsRepoError OIDCError OverloadedError SafetensorsParsingError
    SandboxCommandError SandboxError StrictDataclassDefinitionError StrictDataclassError TextGenerationError
    UnknownError ValidationError
    """,
    )
)


@pytest.mark.parametrize(("error", "word"), BY_WORDS, ids=[error[:60] for error, _ in BY_WORDS])
def test_what_takes_a_card_is_explained_too(error: str, word: str) -> None:
    seen = explain(
        f'Traceback (most recent call last):\n  File "/x/train.py", line 3, in f\n    g()\n{error}\n', SIGNATURES
    )
    assert seen.known is not None and word in f"{seen.known.cause} {seen.known.do} {seen.rules}"


def test_every_class_of_the_hub_s_client_that_loading_raises_is_among_them() -> None:
    """A new class of huggingface_hub belongs into one of the three lists."""
    errors = pytest.importorskip("huggingface_hub.errors")
    classes = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception) and value.__module__ == errors.__name__
    }
    produced = {name.partition(",")[0] for cases in GROUPS.values() for name in cases}
    by_words = {error.partition(":")[0].rpartition(".")[2] for error, _ in BY_WORDS}
    assert classes - ELSEWHERE <= produced | by_words, classes - ELSEWHERE - produced - by_words
    assert not ELSEWHERE & (produced | by_words)
    raised = sum(map(len, GROUPS.values()))
    print(f"{raised} failures of {len(GROUPS)} libraries raised while loading, {len(BY_WORDS)} more by their words;")
    print(f"of huggingface_hub's {len(classes)} exceptions {len(classes - ELSEWHERE)} come of loading")
