"""What PyTorch raises when a machine can no more, in words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from .errors import TrainError


@contextmanager
def explained() -> Iterator[None]:
    """Raises TrainError in place of what memory that ran out or a GPU that failed raises."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise TrainError(
            f"The GPU ran out of memory ({_first(error)}). Lower the resolution or the batch size, keep "
            "gradient_checkpointing on, or quantize the model (qtype: int8)."
        ) from error
    except MemoryError as error:
        raise TrainError(_memory(error)) from error
    except RuntimeError as error:
        if "DefaultCPUAllocator" in str(error):
            raise TrainError(_memory(error)) from error
        if "CUDA error" not in str(error):
            raise
        raise TrainError(
            f"The GPU failed ({_first(error)}). The last checkpoint stays: when nvidia-smi shows the card without an "
            "error (after a driver reset or a restart of the machine), the same command goes on from there."
        ) from error


def _memory(error: BaseException) -> str:
    return (
        f"The memory of this computer ran out ({_first(error)}). End other programs, lower the resolution or the "
        "batch size, or quantize the model (qtype: int8)."
    )


def _first(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
