"""The attention of the transformer's blocks is PyTorch's own, and a faster one on CPUs.

torch's kernel for CPUs spends most of its time in the backward pass. In bfloat16 plain products of whole matrices,
with the probabilities kept for it, take 0.6 to 0.8 of its time. Their error is as small (benchmarks/attention.py):
scores and softmax are float32 here too.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

# torch's own, whatever stands in its place.
torch_attention = functional.scaled_dot_product_attention

# The most bytes of probabilities that one attention keeps for its backward pass; above, torch's kernel keeps none.
KEPT = 16 << 20
# So many scores are computed at a time: what they are made into next finds them in the cache.
PART = 1 << 20
# Names the kernel of all of diffusers' attention; some of them have no backward pass and say nothing of it.
VARIABLE, NATIVE = "DIFFUSERS_ATTN_BACKEND", "native"


def use_native_attention(model: Any) -> str:
    """Lets the blocks call PyTorch's attention; returns another one that the environment asks for, or "".

    Others would go past the scaled products of float16, and of SageAttention no gradient comes back.
    """
    about = logging.getLogger("diffusers.models.modeling_utils")  # it warns that this is an experimental feature
    before, about.disabled = about.disabled, True
    try:
        model.set_attention_backend(NATIVE)
    finally:
        about.disabled = before
    asked = os.environ.get(VARIABLE, NATIVE)
    return "" if asked == NATIVE else asked


def set_attention(attention: Callable[..., Tensor], block: nn.Module) -> None:
    """Puts `attention` in the place of scaled_dot_product_attention in a block, also when it is computed again."""
    for module in block.modules():
        if hasattr(module, "processor"):  # diffusers' name for what computes the attention of this module
            _wrap(module, attention)


def _wrap(module: Any, attention: Callable[..., Tensor]) -> None:
    plain = module.forward

    def forward(*args: Any, **options: Any) -> Any:
        # A TorchFunctionMode would do it, too, and see every other call in there: 0.3 ms for each attention.
        functional.scaled_dot_product_attention = attention
        try:
            return plain(*args, **options)
        finally:
            functional.scaled_dot_product_attention = torch_attention

    module.forward = forward


def matmul_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Computes attention of batch x heads x tokens x width, by plain matmuls where that is faster."""
    kept = query.shape[:-1].numel() * key.shape[-2] * query.element_size()
    plain = attn_mask is None and not dropout_p and not is_causal and query.shape[:-2] == key.shape[:-2]
    if plain and query.dtype == torch.bfloat16 and kept <= KEPT:
        batch = query.shape[:-2]
        operands = (operand.flatten(0, -3) for operand in (query, key, value))
        output: Tensor = _products(*operands, query.shape[-1] ** -0.5 if scale is None else scale)
        return output.view(*batch, *output.shape[1:])
    return torch_attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)


class _Products(torch.autograd.Function):
    """Attention of heads x tokens x width; what is done with scores is done with some heads at a time."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        weights = query.new_empty(*query.shape[:-1], key.shape[-2])
        for queries, keys, part in _parts(weights, query, key, weights):
            scores = torch.bmm(queries.float(), keys.float().transpose(1, 2)).mul_(scale)
            part.copy_(torch.softmax(scores, -1, out=scores))
        ctx.save_for_backward(query, key, value, weights)
        ctx.scale = scale
        return torch.bmm(weights, value)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, Tensor, Tensor, None]:
        query, key, value, weights = ctx.saved_tensors
        grad = grads[0].contiguous()
        to_query, to_key = torch.empty_like(query), torch.empty_like(key)
        parts = _parts(weights, query, key, value, weights, grad, to_query, to_key)
        for queries, keys, values, part, grad_part, query_part, key_part in parts:
            of_part = torch.bmm(grad_part, values.transpose(1, 2))
            scores = torch.ops.aten._softmax_backward_data(of_part, part, -1, part.dtype).mul_(ctx.scale)
            torch.bmm(scores, keys, out=query_part)
            torch.bmm(scores.transpose(1, 2), queries, out=key_part)
        return to_query, to_key, torch.bmm(weights.transpose(1, 2), grad), None


def _parts(weights: Tensor, *tensors: Tensor) -> Any:
    """The tensors in parts of as many heads as have PART scores."""
    heads = max(1, PART // weights[0].numel())
    return zip(*(torch.split(tensor, heads) for tensor in tensors), strict=True)


_products: Any = _Products.apply
