"""The blocks of a transformer one by one: which are computed again in the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from .families import family_of


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """The blocks in the order in which they run."""
    lists = [model.get_submodule(name) for name in family_of(model).BLOCKS]
    return [block for blocks in lists for block in blocks.children()]


def trained_blocks(model: nn.Module, names: Iterable[str]) -> list[nn.Module]:
    """Those that hold one of the Linears of these names, in the order in which they run."""
    held = {id(model.get_submodule(".".join(name.split(".")[:2]))) for name in names}
    return [block for block in blocks_of(model) if id(block) in held]


def checkpointing(
    model: nn.Module, names: Iterable[str], interval: int = 1, random: bool = False
) -> Callable[..., Any]:
    """Runs a block; of the trained ones every `interval`-th, from the first, is computed again in backward.

    Blocks without LoRA (`names` are the Linears that have one) need no backward, and the last block's would be
    computed again at once: they run as they are. `random`: what a block draws is drawn the same again.
    """
    again = {id(block) for block in trained_blocks(model, names)[:-1:interval]}

    def call(block: nn.Module, *inputs: Any) -> Any:
        if id(block) not in again:
            return block(*inputs)
        return checkpoint(block, *inputs, use_reentrant=False, preserve_rng_state=random)

    return call
