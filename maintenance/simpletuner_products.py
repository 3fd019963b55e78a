"""Frozen Linears as SimpleTuner quantizes them: what a product keeps for backward, and takes while it runs.

SDNQ's and Quanto's products are written down here as their sources have them (sdnq 0.2.8, optimum-quanto 0.2.7, and
int8-torchao as SimpleTuner's torchao_workarounds.py has it). Those of torchao in float8 are its own code (0.17.0),
with SimpleTuner's changes, and must be installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from zdoctor.doctor.families.network import lokr_shapes
from zdoctor.maintenance.kohya_classes import LinearWrapper

OF_FILE = "file-kept"  # of models that are published in float8
FEWEST = 32  # rows with which SDNQ multiplies in 8 bits
FACTOR = 12  # that of SimpleTuner's examples
RANK_OF_ADAPTER = 32  # what it keeps of as many numbers a token is next to nothing


class _Sdnq(torch.autograd.Function):
    """SDNQ's product in 8 bits: keeps nothing, and answers in the type that it is given (linear_int8.py)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, codes: Tensor) -> Tensor:
        ctx.codes, ctx.dtype = codes, x.dtype
        given = torch.empty(x.shape, dtype=torch.int8)
        out = torch.empty(*x.shape[:-1], codes.shape[0], dtype=x.dtype)
        del given
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        gradient, codes = gradients[0], ctx.codes
        whole = torch.empty_like(codes, dtype=torch.float32)
        again, given = torch.empty_like(codes), torch.empty_like(gradient, dtype=torch.int8)
        found = gradient.new_empty(*gradient.shape[:-1], codes.shape[1])
        turned = torch.empty_like(found)  # by the Hadamard matrix, out of place
        del whole, again, given, found
        return turned, None


class _SdnqOfFew(torch.autograd.Function):
    """SDNQ's product of few rows: keeps the weights that it made 16 bits (training/layers/linear/forward.py)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, codes: Tensor) -> Tensor:
        weight = _made_half(codes)
        ctx.save_for_backward(weight if ctx.needs_input_grad[0] else None)
        return nn.functional.linear(x, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return gradients[0] @ ctx.saved_tensors[0], None


class _Kept(torch.autograd.Function):
    """Keeps its input though the weight is frozen, as Quanto's and SimpleTuner's own for torchao do."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, codes: Tensor) -> Tensor:
        ctx.save_for_backward(x, codes)
        return nn.functional.linear(x, codes.to(x.dtype))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return gradients[0] @ ctx.saved_tensors[1].to(gradients[0].dtype), None


def _made_half(codes: Tensor) -> Tensor:
    return codes.to(torch.float32).to(torch.bfloat16)


def _sdnq(x: Tensor, codes: Tensor, bias: Tensor | None) -> Tensor:
    product = _Sdnq if x.numel() // x.shape[-1] >= FEWEST else _SdnqOfFew
    found: Tensor = product.apply(x, codes)  # type: ignore[no-untyped-call]
    return found


def _kept(x: Tensor, codes: Tensor, bias: Tensor | None) -> Tensor:
    found: Tensor = _Kept.apply(x, codes)  # type: ignore[no-untyped-call]
    return found if bias is None else found + bias.to(found.dtype)


@cache
def _torchao() -> Any:
    """torchao's module of weights in float8, with SimpleTuner's gradient of its product."""
    changed = import_module("simpletuner.helpers.training.quantisation.torchao_workarounds")
    # what tensors without data are computed by
    vars(torch.ops.aten._scaled_mm)["default"] = changed._orig_aten_scaled_mm
    return import_module("torchao.quantization.quantize_.workflows.float8.float8_tensor")


def _of_torchao(x: Tensor, codes: Tensor, bias: Tensor | None, *, scaled: bool) -> Tensor:
    """torchao's Linear; with `scaled` what it is given is made 8 bits, too, all of it with one scale."""
    torchao = _torchao()
    rows, columns = codes.shape
    named: dict[str, Any] = {"dtype": torch.bfloat16}
    if scaled:
        granularity = import_module("torchao.quantization.granularity").PerTensor()
        config = torchao.Float8MMConfig(use_fast_accum=True)
        given = torchao.QuantizeTensorToFloat8Kwargs(torch.float8_e4m3fn, granularity)
        named |= {"act_quant_kwargs": given, "mm_config": config, "block_size": [rows, columns]}
    else:
        named["block_size"] = [1, columns]
    scale = torch.empty(1, 1) if scaled else torch.empty(rows, 1)
    weight = torchao.Float8Tensor(codes.view(torch.float8_e4m3fn), scale, **named)
    # past autocast, which comes after a subclass's own functions
    found: Tensor = torchao._float8_addmm_impl(x, weight.t(), bias)
    return found


def _of_file(x: Tensor, codes: Tensor, bias: Tensor | None) -> Tensor:
    """A float8 file's Linear (ideogram/quantized_loading.py), but on cards of the capability 8.9."""
    scale = torch.empty(codes.shape[0], dtype=torch.float32)
    weight = codes.to(x.dtype) * scale.to(x.dtype).unsqueeze(1)
    return nn.functional.linear(x, weight, None if bias is None else bias.to(x.dtype))


Product = Callable[[Tensor, Tensor, Tensor | None], Tensor]
# way -> product of what a Linear is given with its codes, and its bias
KEEPING: Mapping[str, Product] = {
    "nothing-kept": _sdnq,
    "input-kept": _kept,
    "copy-kept": partial(_of_torchao, scaled=False),
    "scaled-kept": partial(_of_torchao, scaled=True),
    OF_FILE: _of_file,
}


def of_torchao(product: Product | None) -> bool:
    return getattr(product, "func", None) is _of_torchao


def readied(product: Product | None) -> None:
    """What a product imports, of which torchao tries itself on tensors, is there before a step counts its own."""
    if of_torchao(product):
        _torchao()


class Quantized(nn.Linear):
    """A Linear whose frozen weights have 8 bits, and what it keeps for backward."""

    def __init__(self, base: nn.Linear, product: Product) -> None:
        super().__init__(base.in_features, base.out_features, bias=False)
        self.weight = nn.Parameter(base.weight.detach().to(torch.int8), requires_grad=False)
        self.bias = base.bias
        self.product = product

    def forward(self, input: Tensor) -> Tensor:
        return self.product(input, self.weight, self.bias)


class Adapted(LinearWrapper, nn.Linear):
    """A Linear with a LoRA that does not learn, which was there before its weights became 8 bits, too.

    As a Linear it gets the one that learns.
    """

    def __init__(self, base: nn.Linear, product: Product) -> None:
        super().__init__(Quantized(base, product))
        columns, rows = base.in_features, base.out_features
        self.down, self.up = (
            Quantized(nn.Linear(*sides, bias=False, dtype=torch.bfloat16), product)
            for sides in ((columns, RANK_OF_ADAPTER), (RANK_OF_ADAPTER, rows))
        )

    def forward(self, input: Tensor) -> Tensor:
        found: Tensor = self.base(input)
        added: Tensor = self.up(self.down(input))
        return found + added * 1.0


def offload() -> None:
    """What SimpleTuner moves to host memory is gone until backward asks (offloaded_gradient_checkpointer.py)."""
    hooks = import_module("simpletuner.helpers.training.offloaded_gradient_checkpointer").CPUOffloadHooks
    hooks.pack, hooks.unpack = staticmethod(_away), staticmethod(_back)


def _away(tensor: Tensor) -> Any:
    return tensor if tensor.is_leaf else (tensor.shape, tensor.stride(), tensor.dtype)


def _back(left: Any) -> Tensor:
    if isinstance(left, Tensor):
        return left
    shape, stride, dtype = left
    return torch.empty_strided(shape, stride, dtype=dtype, device="meta")


class Lokr(LinearWrapper):
    """A Linear with a LoKr of two full matrices as LyCORIS has it that leaves weights as they are (bypass_mode)."""

    def __init__(self, base: nn.Module, shape: tuple[int, int], rank: int) -> None:
        super().__init__(base)
        matrices = lokr_shapes(*shape, FACTOR, None)
        self.outer, self.inner = (nn.Parameter(torch.zeros(*one, dtype=torch.bfloat16)) for one in matrices.values())

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.base(x)
        outer, inner = self.outer.to(x.dtype), self.inner.to(x.dtype)
        groups = x.reshape(*x.shape[:-1], outer.shape[1], -1)
        crossed = nn.functional.linear(groups, inner).transpose(-1, -2)
        added = nn.functional.linear(crossed, outer).transpose(-1, -2).reshape(*x.shape[:-1], -1)
        return found + added * 1.0 * 1.0
