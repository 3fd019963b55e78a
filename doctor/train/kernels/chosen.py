"""What computes the steps of a run on its device, as the loaded model and its optimizer have it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .attention import KEPT
from .float16 import multiplies_in_float16
from .quantized_linear import FORMATS, MULTIPLIES_SUMS, QuantizedLinear, why_not_fused

HEADS, TOKENS, WIDTH = 8, 256, 128


def chosen_kernels(
    model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device, dtype: torch.dtype, compiled: bool
) -> dict[str, str]:
    """Returns in words what computes attention, the products of the frozen Linears, the blocks, and the update."""
    one_kernel = all(group.get("fused") for group in optimizer.param_groups)
    return {
        "attention": _attention(device, dtype),
        "products": _products(model, device, dtype, compiled),
        "blocks": "compiled" if compiled else "as written",
        "optimizer": f"{type(optimizer).__name__}{', one kernel' if one_kernel else ''}",
    }


def _attention(device: torch.device, dtype: torch.dtype) -> str:
    if device.type == "cpu":
        most = f"plain products up to {KEPT >> 20} MiB of scores, " if dtype == torch.bfloat16 else ""
        return f"{most}PyTorch's for CPUs"
    from torch.nn.attention import SDPBackend

    choose: Any = torch._fused_sdp_choice  # pyright: ignore[reportPrivateImportUsage]
    one = torch.ones(1, HEADS, TOKENS, WIDTH, device=device, dtype=dtype, requires_grad=True)
    try:
        return SDPBackend(int(choose(one, one, one))).name.lower().replace("_", " ")
    except (RuntimeError, ValueError, AttributeError, TypeError):
        return "PyTorch's choice"


def _products(model: nn.Module, device: torch.device, dtype: torch.dtype, compiled: bool) -> str:
    plain = str(dtype).removeprefix("torch.")
    layer = next((module for module in model.modules() if isinstance(module, QuantizedLinear)), None)
    if layer is None:
        return plain
    scaled = multiplies_in_float16(layer)
    if layer.scale.dim() == 2:
        by = "compiled code" if compiled else "PyTorch's kernels"
        if device.type == "cuda" and not compiled and not why_not_fused(device):
            by = "one kernel of Triton"
        return f"{plain}, weights made of nf4 by {by}{', scaled by row' if scaled else ''}"
    stored = next(name for name, (_, kind) in FORMATS.items() if kind == layer.codes.dtype)
    if scaled:
        return f"{plain} of {stored} codes, scaled by row"
    by_onednn = device.type == "cpu" and dtype == torch.bfloat16 and MULTIPLIES_SUMS
    return f"{plain} of {stored} codes, scaled {'by oneDNN within' if by_onednn else 'behind'} the product"
