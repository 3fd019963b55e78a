"""What a run takes of a CUDA device, as PyTorch's allocator counts it."""

from __future__ import annotations

from typing import Any

import torch

CUDA: Any = torch.cuda


def peak_memory(device: torch.device) -> dict[str, int]:
    """The most bytes allocated and reserved since the count last began anew; {} where there is no such count.

    The CUDA context, some hundred MB more on the device, is not in them.
    """
    if device.type != "cuda":
        return {}
    return {"allocated": CUDA.max_memory_allocated(device), "reserved": CUDA.max_memory_reserved(device)}


def count_anew(device: torch.device) -> None:
    if device.type == "cuda":
        CUDA.reset_peak_memory_stats(device)
