"""The bytes of all tensors that are alive, now and at their highest, by what they are."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from .allocator import ROUNDED, Allocator, Block


class Alive(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of the storages that are alive, `now` and at the `peak`, each rounded up as CUDA does.

    A new storage belongs to what `label` says then; `at_peak` are the bytes of each label at the peak, `trail` all
    that was alive as each came. CUDA's context and workspaces are not in it; what its allocator makes of the
    storages, in the order in which they come and go, is in `allocator`.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.allocator = Allocator()
        self.label = "weights"
        self.held: Counter[str] = Counter()
        self.at_peak: Counter[str] = Counter()
        self.now = self.peak = 0
        self.trail: list[int] = []
        self.labels: dict[int, str] = {}

    def add(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.labels:
            return
        size = -(-storage.nbytes() // ROUNDED) * ROUNDED
        self.labels[key] = self.label
        self.now += size
        self.held[self.label] += size
        self.trail.append(self.now)
        if self.now > self.peak:
            self.peak = self.now
            self.at_peak = self.held.copy()
        weakref.finalize(storage, self._gone, key, size, self.allocator.take(size))

    def add_all(self, tensors: Iterable[torch.Tensor], label: str) -> None:
        self.label = label
        for tensor in tensors:
            self.add(tensor)

    def belongs(self, tensor: torch.Tensor, label: str) -> None:
        """What this tensor holds is from now on counted with `label`."""
        storage = tensor.untyped_storage()
        if (before := self.labels.get(storage._cdata)) is not None:
            size = -(-storage.nbytes() // ROUNDED) * ROUNDED
            self.held[before] -= size
            self.held[label] += size
            self.labels[storage._cdata] = label

    def again(self) -> None:
        """The peak is looked for anew."""
        self.peak, self.at_peak = self.now, self.held.copy()
        self.trail = [self.now]

    def _gone(self, key: int, size: int, block: Block) -> None:
        self.held[self.labels.pop(key)] -= size
        self.now -= size
        self.allocator.give_back(block, size)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for value in tree_iter(found):
            if isinstance(value, torch.Tensor):
                self.add(value)
        return found
