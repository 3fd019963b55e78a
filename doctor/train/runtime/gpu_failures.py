"""Memory that runs out and GPUs that fail are told in words instead of PyTorch's."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import torch

from ...crash import table
from ...families.network import offloaded_share
from ...model.crashes import Failure
from ...model.run import Run
from .train_error import TrainError, first_line

T = TypeVar("T")
# A full card as CUDA and its libraries tell it, which PyTorch passes on as it is: no room for the context or pinned
# memory, for a library's handle, for what a convolution needs beside its tensors.
NO_ROOM = (
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "unable to find an engine to execute this computation",
    "MPS backend out of memory",
    "Invalid buffer size: ",  # MPS, of more than it gives to one tensor
)
_CARD = re.compile(
    r"(CUDA|HIP)( driver| unknown)? error|Triton Error \[CUDA\]|CUDA driver initialization failed"
    r"|The NVIDIA driver on your system is too old"
)
# Who has how much of a card, in PyTorch's words. In a container its own process has another number, and is no other.
_OTHER = re.compile(r"Process (\d+) has ([\d.]+) (MiB|GiB) memory in use")
_OWN = re.compile(r"this process has")
# What another program holds that is worth ending it; a desktop has less.
MUCH = 1.0
LESS = "Lower the resolution or the batch size, keep gradient_checkpointing on, or quantize the model (qtype: int8)."


@contextmanager
def explain_gpu_failures() -> Iterator[None]:
    """Raises TrainError in place of what memory that ran out or a GPU that failed raises."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        told = gpu_failure_message(error)
        if told is None:
            raise
        raise TrainError(told) from error


def gpu_failure_message(error: BaseException, less: str = LESS) -> str | None:
    """Returns what to say of memory that ran out (and how to need `less`) or of a failed GPU; None of all else."""
    if _no_room(error):
        return f"The GPU ran out of memory ({first_line(error)}). {_held_by_others(str(error)) or less}"
    if isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error):
        return f"The memory of this computer ran out ({first_line(error)}). End other programs. {less}"
    if is_gpu_lost(error) or (isinstance(error, RuntimeError) and "cuDNN error" in str(error)):
        failure = Failure(type(error).__name__, str(error), (), 0)
        cards = table.of("card")  # the last one: a card that failed, whatever the reason
        known = next((known for known in (*table.of("packages"), *cards) if known.matches(failure)), cards[-1])
        told = known.filled(f"{known.cause} {known.do}", failure)
        more = f" zdoctor explain {known.rule} says more." if known.rule else ""
        return f"The GPU failed ({first_line(error)}{_noticed(error)}). {told}{more}"
    return None


def is_gpu_lost(error: BaseException) -> bool:
    """Tells whether a GPU failed otherwise than for want of memory. CUDA says so late: amid what comes after."""
    return isinstance(error, RuntimeError) and _CARD.search(str(error)) is not None and not _no_room(error)


def memory_savings(run: Run, error: BaseException) -> str:
    """Returns what can be set so that a step needs less memory and the saved state still fits."""
    recipe = run.recipe
    offloads = recipe.offload.every_block_again and not recipe.offload.compile and not offloaded_share(run)
    words = [] if recipe.offload.gradient_checkpointing else ["gradient_checkpointing: true"]
    if recipe.batch_size > 1:
        names = (run.keys.get(name, name).rpartition("/")[2] for name in ("batch_size", "gradient_accumulation"))
        words.append("{}: 1 with {}: {}".format(*names, recipe.batch_size * recipe.gradient_accumulation))
    if offloads and run.device.startswith("cuda") and _no_room(error):
        words.append("layer_offloading: true")
    return f"Set {', or '.join([*words, 'a lower resolution'])}."


def release_frames(error: BaseException | None) -> None:
    """Drops the tensors of a failed step, which the frames of its error still hold."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def unless_out_of_memory(work: Callable[[], T]) -> T | None:
    """Returns what `work` gives; None where the GPU has no room for it, and then nothing of it is kept there."""
    try:
        return work()
    except RuntimeError as error:
        if not _no_room(error):
            raise
    return None  # not in the handler: while that runs, the error keeps every tensor of what failed


def _held_by_others(message: str) -> str:
    """What to do where other processes hold much of the card; "" where they do not, or nobody knows."""
    every = [(float(size) / (1024 if unit == "MiB" else 1), pid) for pid, size, unit in _OTHER.findall(message)]
    held, pid = max(every, default=(0.0, ""))
    if held < MUCH or not _OWN.search(message):
        return ""
    return f"Process {pid} holds {held:.1f} GiB of the card: end it, or wait until it is done, and start again."


def _no_room(error: BaseException) -> bool:
    return isinstance(error, RuntimeError) and (
        isinstance(error, torch.OutOfMemoryError) or any(words in str(error) for words in NO_ROOM)
    )


def _noticed(error: BaseException) -> str:
    """The line of Python at which a failure was noticed."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"; {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
