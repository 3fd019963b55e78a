"""Block swap keeps the frozen weights of some blocks in host memory until their turn.

Two places on the device hold a block each: the one that runs, and the next one, which is copied meanwhile (on CUDA by
a stream of its own, from pinned memory). Backward goes through the checkpointed blocks from the last to the first, so
the order turns round at the last block. A wrong guess of what comes next costs time only.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from .transformer_blocks import backward_blocks, transformer_blocks

ALIGNED = 64
CUDA: Any = torch.cuda


@dataclass(frozen=True)
class _Part:
    """A frozen tensor of a block: where it belongs, and where it lies in the block's bytes."""

    module: nn.Module
    name: str
    start: int
    end: int
    dtype: torch.dtype
    shape: torch.Size

    def put(self, content: Tensor) -> None:
        """Let the module use its part of a block's bytes.

        A parameter is a new one each time: what autograd has kept for backward goes on with the old.
        """
        value = content[self.start : self.end].view(self.dtype).view(self.shape)
        if self.name in self.module._parameters:
            self.module._parameters[self.name] = nn.Parameter(value, requires_grad=False)
        else:
            self.module._buffers[self.name] = value


class BlockSwap:
    """Takes the frozen weights of `blocks`, in the order in which they run, off the device and brings them back.

    `first`: the index of the first block that runs again in backward.
    """

    def __init__(self, blocks: Sequence[nn.Module], device: torch.device, first: int = 0) -> None:
        self.first = first
        self.device = device
        self.parts = [_parts(block) for block in blocks]
        self.homes = [_at_home(parts, device) for parts in self.parts]
        size = max(home.numel() for home in self.homes)
        self.places = [torch.empty(size, dtype=torch.uint8, device=device) for _ in range(2)]
        self.tenants: list[int | None] = [None, None]
        self.place = 0
        self.last = -1
        self.copies: Any = CUDA.Stream(device) if device.type == "cuda" else None
        self.ready: list[Any] = [None, None]
        for index, block in enumerate(blocks):
            block.register_forward_pre_hook(partial(self._turn, index))

    @property
    def size(self) -> int:
        """The bytes that stay in host memory."""
        return sum(home.numel() for home in self.homes)

    def _turn(self, index: int, *_: Any) -> None:
        """A block is about to run: its weights are here, and the next one's are asked for."""
        if index not in self.tenants:
            self._fetch(index, 1 - self.place)
        self.place = self.tenants.index(index)
        if self.copies is not None:
            CUDA.current_stream(self.device).wait_event(self.ready[self.place])
        following = self._following(index)
        self.last = index
        if following not in self.tenants:
            self._fetch(following, 1 - self.place)

    def _following(self, index: int) -> int:
        if self.first <= index < self.last:  # backward
            return index - 1 if index > self.first else 0
        if index == len(self.parts) - 1:
            return max(index - 1, 0) if torch.is_grad_enabled() else 0
        return index + 1

    def _fetch(self, index: int, place: int) -> None:
        before = self.tenants[place]
        if before is not None:
            for part in self.parts[before]:
                part.put(self.homes[before])
        home = self.homes[index]
        content = self.places[place][: home.numel()]
        if self.copies is None:
            content.copy_(home)
        else:
            # What the place held was used by work that is queued already; the copy waits for that work.
            self.copies.wait_stream(CUDA.current_stream(self.device))
            with CUDA.stream(self.copies):
                content.copy_(home, non_blocking=True)
                self.ready[place] = self.copies.record_event()
        for part in self.parts[index]:
            part.put(content)
        self.tenants[place] = index


def swap_blocks(model: nn.Module, blocks: Sequence[nn.Module], device: torch.device, first: int = 0) -> BlockSwap:
    """Brings a model that lies in host memory to the device, but for the frozen weights of `blocks`."""
    made = BlockSwap(blocks, device, first)
    away = {(id(part.module), part.name) for parts in made.parts for part in parts}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None and (id(module), name) not in away:
                parameter.data = parameter.data.to(device)
        for name, buffer in module._buffers.items():
            if buffer is not None and (id(module), name) not in away:
                module._buffers[name] = buffer.to(device)
    return made


def swap_share(model: nn.Module, names: Iterable[str], share: float, device: torch.device) -> int:
    """Swaps a share of the blocks; `names` are the Linears that have a LoRA. The bytes that stay behind."""
    blocks = transformer_blocks(model)
    taken = [blocks[index] for index in spread(len(blocks), share)]
    back = {id(block) for block in backward_blocks(model, names)}
    if not taken:
        model.to(device)
        return 0
    first = next((index for index, block in enumerate(taken) if id(block) in back), 0)
    return swap_blocks(model, taken, device, first).size


def spread(count: int, share: float) -> list[int]:
    """Returns which of `count` blocks make up a share of them: evenly, so that each copy has time."""
    taken = min(count, round(count * share))
    return [index * count // taken for index in range(taken)]


def _parts(block: nn.Module) -> list[_Part]:
    parts: list[_Part] = []
    start = 0
    for module in block.modules():
        for name, tensor in [*module._parameters.items(), *module._buffers.items()]:
            if tensor is None or tensor.requires_grad:
                continue
            end = start + tensor.numel() * tensor.element_size()
            parts.append(_Part(module, name, start, end, tensor.dtype, tensor.shape))
            start = -(-end // ALIGNED) * ALIGNED
    return parts


def _at_home(parts: Sequence[_Part], device: torch.device) -> Tensor:
    """Put a block's tensors together in host memory, pinned for CUDA where the system lets it; the old ones go."""
    home = torch.empty(max(part.end for part in parts), dtype=torch.uint8)
    for part in parts:
        tensor = part.module._parameters.get(part.name)
        value = part.module._buffers[part.name] if tensor is None else tensor
        assert value is not None
        home[part.start : part.end] = value.detach().contiguous().view(-1).view(torch.uint8)
    # pin_memory() would round the size up to a power of two.
    if device.type == "cuda":
        if int(CUDA.cudart().cudaHostRegister(home.data_ptr(), home.numel(), 0)) == 0:
            weakref.finalize(home, _unpin, home.data_ptr(), device).atexit = False
        else:
            with suppress(RuntimeError):  # copies are slower then; the failure is told to the next launch, this one
                torch.zeros(1, device=device)
    for part in parts:
        part.put(home)
    return home


def _unpin(address: int, device: torch.device) -> None:
    """Memory that is freed while it is pinned stays taken, and CUDA would copy it for what lies there next."""
    with suppress(RuntimeError):  # of a card that has failed
        CUDA.synchronize(device)
        CUDA.cudart().cudaHostUnregister(address)
