"""What PyTorch raises when a machine can no more, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

from .errors import TrainError

T = TypeVar("T")
# A full card as CUDA and its libraries tell it, which PyTorch passes on as it is: no room for the context or pinned
# memory, for a library's handle, for what a convolution needs beside its tensors.
NO_ROOM = (
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "unable to find an engine to execute this computation",
)


@contextmanager
def explained() -> Iterator[None]:
    """Raises TrainError in place of what memory that ran out or a GPU that failed raises."""
    try:
        yield
    except MemoryError as error:
        raise TrainError(_memory(error)) from error
    except RuntimeError as error:
        if _no_room(error):
            raise TrainError(
                f"The GPU ran out of memory ({_first(error)}). Lower the resolution or the batch size, keep "
                "gradient_checkpointing on, or quantize the model (qtype: int8)."
            ) from error
        if "DefaultCPUAllocator" in str(error):
            raise TrainError(_memory(error)) from error
        if "CUDA error" not in str(error):
            raise
        raise TrainError(
            f"The GPU failed ({_first(error)}). The last checkpoint stays: when nvidia-smi shows the card without an "
            "error (after a driver reset or a restart of the machine), the same command goes on from there."
        ) from error


def tried(work: Callable[[], T]) -> T | None:
    """What `work` gives, None where the GPU has no room for it; then nothing keeps what it had taken there."""
    try:
        return work()
    except RuntimeError as error:
        if not _no_room(error):
            raise
    return None  # not in the handler: while that runs, the error keeps every tensor of what failed


def _no_room(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or any(words in str(error) for words in NO_ROOM)


def _memory(error: BaseException) -> str:
    return (
        f"The memory of this computer ran out ({_first(error)}). End other programs, lower the resolution or the "
        "batch size, or quantize the model (qtype: int8)."
    )


def _first(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
