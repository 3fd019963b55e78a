"""The blocks of a transformer are checkpointed, compiled, or given another arithmetic one by one."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from ...families.record.blocks import block_of
from ..families import family_of
from ..kernels.attention import matmul_attention, set_attention
from ..kernels.float16 import multiply_in_float16, scaled_attention
from ..kernels.quantized_linear import QuantizedLinear

# How often torch.compile may make kernels of one function.
KERNELS = 64


def block_names(model: nn.Module) -> list[str]:
    """Returns the names of the blocks in the order in which they run."""
    names = [name for name, _ in model.named_modules()]
    lists = family_of(model).RECORD.blocks
    return [name for one in lists for name in names if name and block_of(name, (one,)) == name]


def transformer_blocks(model: nn.Module) -> list[nn.Module]:
    """Returns the blocks in the order in which they run."""
    return [model.get_submodule(name) for name in block_names(model)]


def backward_blocks(model: nn.Module, names: Iterable[str]) -> list[nn.Module]:
    """Returns the blocks that backward goes through: from the first that holds one of these layers to the last, all
    where one is in none of them.
    """
    lists = family_of(model).RECORD.blocks
    held = {block_of(name, lists) for name in names}
    blocks = block_names(model)
    first = 0 if "" in held else next(index for index, block in enumerate(blocks) if block in held)
    return [model.get_submodule(name) for name in blocks[first:]]


def use_float16(model: nn.Module) -> None:
    """Lets the blocks multiply in float16: each Linear there is quantized, all else is float32."""
    multiply_in_float16(model)
    for block in transformer_blocks(model):
        set_attention(scaled_attention, block)


def optimize_for_cpu(model: nn.Module, all_again: bool) -> None:
    """Lets the blocks do what is faster on a CPU.

    `all_again`: every block will be computed again in backward. Then quantized Linears keep the matrices that they
    multiplied by until the backward pass, which are those of one block at a time.
    """
    for block in transformer_blocks(model):
        set_attention(matmul_attention, block)
        for module in block.modules():
            if all_again and isinstance(module, QuantizedLinear):
                module.keep_matrix()


def compile_blocks(model: nn.Module) -> None:
    """Lets torch.compile make kernels of each kind of block.

    That is at its first call, once more for another size of picture, which then serves for all sizes, and for each
    kind of call: without gradients, without the network, with a mask for captions of unlike lengths. All blocks share
    one limit of such kernels, 8; what is beyond it would run uncompiled. 23 were counted (benchmarks/compiled.py).
    """
    config: Any = import_module("torch._dynamo.config")  # in a lean process torch has only a part of it
    name = "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"  # its older name
    setattr(config, name, max(KERNELS, getattr(config, name)))
    for block in transformer_blocks(model):
        block.compile()


def why_not_compiled(place: torch.device) -> str:
    """Returns why torch.compile cannot work on this device; "" when it may."""
    if place.type == "cuda":
        package = "triton-windows" if sys.platform == "win32" else "triton"
        return "" if find_spec("triton") else f"The setting compile needs Triton. Type: pip install {package}"
    if place.type != "cpu":
        return f"The setting compile is not supported on {place.type}. Take it out."
    compilers = [os.environ.get("CXX") or "", "g++", "clang++", "cl"]
    if any(shutil.which(name) for name in compilers if name):
        return ""
    return "The setting compile needs a C++ compiler (g++, clang++), and none is found. Take it out, or install one."


def checkpoint_blocks(
    model: nn.Module, names: Iterable[str], interval: int = 1, random: bool = False
) -> Callable[..., Any]:
    """Returns what runs a block; from the first with a LoRA on every `interval`-th is computed again in backward.

    Blocks before that (`names` are the layers that have one) need no backward, and the last block's would be
    computed again at once, but for a UNet, where much follows: they run as they are. What diffusers checkpoints
    beside them is computed again. `random`: what a block draws is drawn the same again.
    """
    last = None if family_of(model).RECORD.convolves else -1
    again = {id(block) for block in backward_blocks(model, names)[:last:interval]}
    plain = {id(block) for block in transformer_blocks(model)} - again

    def call(block: nn.Module, *inputs: Any) -> Any:
        if id(block) in plain:
            return block(*inputs)
        return checkpoint(block, *inputs, use_reentrant=False, preserve_rng_state=random)

    return call
