"""PyTorch's caching allocator of CUDA memory, without any memory: what it asks of the driver, and what it gives out.

By its rules (c10/cuda/CUDACachingAllocator.cpp of PyTorch 2.13, nothing in PYTORCH_CUDA_ALLOC_CONF): sizes are
rounded up to 512 bytes; up to 1 MiB come out of segments of 2 MiB, up to 10 MiB out of segments of 20 MiB, more out
of segments of their own in steps of 2 MiB; the smallest free block that is large enough is taken, and is split where
more than 1 MiB (of small ones: 512 bytes) would be left; what is given back joins free neighbours, and no segment
goes back to the driver. So a block that was not split holds up to 1 MiB more than it was asked for, and freed blocks
between others cannot serve larger requests.
"""

from __future__ import annotations

from bisect import bisect_left, insort

ROUNDED = 512
SMALL = 1 << 20  # the largest of a small segment
OF_SMALL = 2 << 20
OF_LARGE = 20 << 20
LARGE = 10 << 20  # from here on a segment of its own
STEP = 2 << 20


class Block:
    """A stretch of a segment, free or given out."""

    __slots__ = ("address", "after", "before", "is_free", "size")

    def __init__(self, address: int, size: int) -> None:
        self.address, self.size, self.is_free = address, size, True
        self.before: Block | None = None
        self.after: Block | None = None


class Allocator:
    """Bytes that are given out (`allocated`) and that the driver was asked for (`reserved`), and the most of each."""

    def __init__(self) -> None:
        self.allocated = self.reserved = self.most_allocated = self.most_reserved = 0
        self._free: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
        self._at: dict[int, Block] = {}

    def take(self, size: int) -> Block:
        """A block of at least so many bytes."""
        size = max(ROUNDED, -(-size // ROUNDED) * ROUNDED)
        is_small = size <= SMALL
        free = self._free[is_small]
        place = bisect_left(free, (size, 0))
        if place < len(free):
            block = self._at[free.pop(place)[1]]
        else:
            segment = OF_SMALL if is_small else OF_LARGE if size < LARGE else -(-size // STEP) * STEP
            block = Block(self.reserved, segment)
            self._at[block.address] = block
            self.reserved += segment
            self.most_reserved = max(self.most_reserved, self.reserved)
        block.is_free = False
        left = block.size - size
        if left >= ROUNDED if is_small else left > SMALL:
            rest = Block(block.address + size, left)
            rest.before, rest.after, block.after, block.size = block, block.after, rest, size
            if rest.after is not None:
                rest.after.before = rest
            self._at[rest.address] = rest
            insort(free, (left, rest.address))
        self.allocated += block.size
        self.most_allocated = max(self.most_allocated, self.allocated)
        return block

    def give_back(self, block: Block, asked: int) -> None:
        """The block that was taken for so many bytes is free again."""
        free = self._free[max(ROUNDED, -(-asked // ROUNDED) * ROUNDED) <= SMALL]
        self.allocated -= block.size
        block.is_free = True
        before, after = block.before, block.after
        if after is not None and after.is_free:
            self._leaves(free, after)
            block.size, block.after = block.size + after.size, after.after
            if block.after is not None:
                block.after.before = block
        if before is not None and before.is_free:
            free.remove((before.size, before.address))
            del self._at[block.address]
            before.size, before.after = before.size + block.size, block.after
            if before.after is not None:
                before.after.before = before
            block = before
        insort(free, (block.size, block.address))

    def _leaves(self, free: list[tuple[int, int]], block: Block) -> None:
        free.remove((block.size, block.address))
        del self._at[block.address]
