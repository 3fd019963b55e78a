"""Tensors go from the host to a card while the processor goes on."""

from __future__ import annotations

import torch
from torch import Tensor


def to_device(value: Tensor, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """Returns a tensor on the device, in `dtype` if one is named.

    A plain copy to a card waits for all that the card has been given to do; from pinned memory it takes its turn.
    """
    if device.type != "cuda" or value.device.type != "cpu":
        return value.to(device=device, dtype=dtype or value.dtype)
    return value.to(dtype or value.dtype).pin_memory().to(device, non_blocking=True)
