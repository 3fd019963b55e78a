"""The precision of a run follows from what it asks for and what the device can do."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..settings.names import DTYPES


@dataclass(frozen=True)
class ComputePrecision:
    """The `dtype` of all that is not quantized; with `scaled_float16` the blocks multiply in float16."""

    dtype: torch.dtype
    scaled_float16: bool = False
    note: str = ""

    @property
    def name(self) -> str:
        return "float16, float32 between products" if self.scaled_float16 else str(self.dtype).removeprefix("torch.")

    @property
    def text_encoder_dtype(self) -> torch.dtype:
        """The dtype of the text encoder, in which float16 stands for `scaled_float16`."""
        return torch.float16 if self.scaled_float16 else self.dtype


def choose_precision(wanted: str, place: torch.device) -> ComputePrecision:
    """Returns how to compute what the config calls `wanted` on this device."""
    dtype: torch.dtype = getattr(torch, DTYPES[wanted])
    if place.type == "cpu":
        return on_cpu(dtype, brain=has_bfloat16(), half=has_float16())
    if place.type == "cuda":
        return on_cuda(dtype, torch.cuda.get_device_name(place), torch.cuda.get_device_capability(place))
    if place.type == "mps" and dtype == torch.bfloat16 and not torch.backends.mps.is_macos_or_newer(14, 0):
        return ComputePrecision(torch.float32, note="PyTorch has bfloat16 on MPS from macOS 14 on: float32 is used.")
    return _as_wanted(dtype)


def _as_wanted(dtype: torch.dtype) -> ComputePrecision:
    return ComputePrecision(torch.float32, scaled_float16=True) if dtype == torch.float16 else ComputePrecision(dtype)


def on_cpu(dtype: torch.dtype, *, brain: bool, half: bool) -> ComputePrecision:
    """Returns the precision on a CPU that multiplies bfloat16 (`brain`) or float16 (`half`) in hardware or not."""
    if dtype == torch.bfloat16 and not brain:
        told = "bfloat16 arithmetic (PyTorch emulates it, about 50 times slower): float32 is used, which is also more"
    elif dtype == torch.float16 and not half:
        told = "float16 arithmetic: float32 is used, which is faster here and more"
    else:
        return _as_wanted(dtype)
    note = f"This CPU has no {told} exact. Quantized weights stay quantized."
    return ComputePrecision(torch.float32, note=note)


def on_cuda(dtype: torch.dtype, card: str, capability: tuple[int, int]) -> ComputePrecision:
    """Returns the precision on a card of this name and compute capability; bfloat16 came with 8.0."""
    if dtype != torch.bfloat16 or capability >= (8, 0):
        return _as_wanted(dtype)
    note = (
        f"{card} (compute capability {capability[0]}.{capability[1]}) has no bfloat16 arithmetic: the blocks and the "
        "text encoder multiply in float16, scaled so that nothing overflows; the rest is float32."
    )
    return ComputePrecision(torch.float32, scaled_float16=True, note=note)


def has_bfloat16() -> bool:
    """Tells whether torch's CPU kernels multiply bfloat16 in hardware here; True where torch cannot tell."""
    try:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    except (AttributeError, RuntimeError):
        return True


def has_float16() -> bool:
    """Tells whether torch's CPU kernels multiply float16 in hardware here; False where torch cannot tell."""
    try:
        return bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())
    except (AttributeError, RuntimeError):
        return False
