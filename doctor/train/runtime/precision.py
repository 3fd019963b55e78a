"""In which types a run computes, by what it asks for and what the device can do."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..settings.names import DTYPES


@dataclass(frozen=True)
class Numerics:
    """`dtype` is that of all that is not quantized; with `half` the blocks multiply in float16."""

    dtype: torch.dtype
    half: bool = False
    note: str = ""

    @property
    def name(self) -> str:
        return "float16, float32 between products" if self.half else str(self.dtype).removeprefix("torch.")

    @property
    def texts(self) -> torch.dtype:
        """What the text encoder computes in; float16 stands for the scaled products of `half`."""
        return torch.float16 if self.half else self.dtype


def numerics(wanted: str, place: torch.device) -> Numerics:
    """How to compute what the config calls `wanted` at this place."""
    dtype: torch.dtype = getattr(torch, DTYPES[wanted])
    if place.type == "cpu":
        return on_cpu(dtype, brain=has_bfloat16(), half=has_float16())
    if place.type == "cuda":
        return on_cuda(dtype, torch.cuda.get_device_name(place), torch.cuda.get_device_capability(place))
    if place.type == "mps" and dtype == torch.bfloat16 and not torch.backends.mps.is_macos_or_newer(14, 0):
        return Numerics(torch.float32, note="PyTorch has bfloat16 on MPS from macOS 14 on: float32 is used.")
    return Numerics(torch.float32, half=True) if dtype == torch.float16 else Numerics(dtype)


def on_cpu(dtype: torch.dtype, *, brain: bool, half: bool) -> Numerics:
    """On a processor that multiplies bfloat16 (`brain`) or float16 (`half`) in hardware, or does not."""
    if dtype == torch.bfloat16 and not brain:
        return Numerics(
            torch.float32,
            note="This CPU has no bfloat16 arithmetic (PyTorch emulates it, about 50 times slower): float32 is used, "
            "which is also more exact. Quantized weights stay quantized.",
        )
    if dtype == torch.float16:
        if half:
            return Numerics(torch.float32, half=True)
        return Numerics(
            torch.float32,
            note="This CPU has no float16 arithmetic: float32 is used, which is faster here and more exact. "
            "Quantized weights stay quantized.",
        )
    return Numerics(dtype)


def on_cuda(dtype: torch.dtype, card: str, capability: tuple[int, int]) -> Numerics:
    """On a card of this name and compute capability; bfloat16 came with 8.0."""
    if dtype == torch.bfloat16 and capability < (8, 0):
        return Numerics(
            torch.float32,
            half=True,
            note=f"{card} (compute capability {capability[0]}.{capability[1]}) has no bfloat16 arithmetic: the "
            "blocks and the text encoder multiply in float16, scaled so that nothing overflows; the rest is float32.",
        )
    return Numerics(torch.float32, half=True) if dtype == torch.float16 else Numerics(dtype)


def has_bfloat16() -> bool:
    """Whether torch's CPU kernels multiply bfloat16 in hardware here; True where torch cannot tell."""
    try:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    except (AttributeError, RuntimeError):
        return True


def has_float16() -> bool:
    """Whether torch's CPU kernels multiply float16 in hardware here; False where torch cannot tell."""
    try:
        return bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())
    except (AttributeError, RuntimeError):
        return False
