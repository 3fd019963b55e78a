"""The allocators of glibc and PyTorch give freed memory back at once, or keep it for the next use."""

from __future__ import annotations

import ctypes
import gc
import sys
from typing import Any

import torch


def return_freed_memory() -> None:
    """Returns freed memory to the system from now on (above 1 MiB), so that loading has a low peak."""
    _mallopt(1 << 20, 1 << 20, trim=True)


def keep_freed_memory() -> None:
    """Keeps freed blocks for the next use from now on, since each step and each image takes the same sizes again.

    Returned and fetched anew, they cost page faults that made the same operations 3.6 times slower on a CPU.
    """
    _mallopt(32 << 20, 512 << 20)


def empty_device_cache() -> None:
    """Gives back what a dropped model held on the device."""
    gc.collect()
    if torch.accelerator.is_available():  # PyTorch 2.6 raises RuntimeError for which, where there is none
        torch.get_device_module(torch.accelerator.current_accelerator()).empty_cache()


def _mallopt(mmap_threshold: int, trim_threshold: int, *, trim: bool = False) -> None:
    """Set the two thresholds of glibc in bytes; on other systems nothing."""
    if sys.platform != "linux":
        return
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt(-3, mmap_threshold)
        libc.mallopt(-1, trim_threshold)
        if trim:
            libc.malloc_trim(0)
    except (OSError, AttributeError):
        return


CUDA: Any = torch.cuda


def peak_memory(device: torch.device) -> dict[str, int]:
    """Returns the most bytes allocated and reserved since the last reset; {} where nothing counts them.

    The CUDA context, some hundred MB more on the device, is not in them.
    """
    if device.type != "cuda":
        return {}
    return {"allocated": CUDA.max_memory_allocated(device), "reserved": CUDA.max_memory_reserved(device)}


def reset_peak_memory(device: torch.device) -> None:
    if device.type == "cuda":
        CUDA.reset_peak_memory_stats(device)
