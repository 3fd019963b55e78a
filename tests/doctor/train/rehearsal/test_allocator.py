"""PyTorch's allocator without memory, by the rules of c10/cuda/CUDACachingAllocator.cpp."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from zdoctor.doctor.train.rehearsal.allocator import Allocator, Block

MIB = 1 << 20
HALF = MIB // 2


@pytest.mark.parametrize(
    ("asked", "allocated", "reserved"),
    [
        ([1], 512, 2 * MIB),
        ([MIB], MIB, 2 * MIB),
        ([MIB, MIB, 1], 2 * MIB + 512, 4 * MIB),
        ([3 * MIB], 3 * MIB, 20 * MIB),
        ([3 * MIB] * 7, 21 * MIB, 40 * MIB),  # six leave 2 MiB, and the seventh is in another segment
        ([12 * MIB + HALF], 12 * MIB + HALF, 14 * MIB),
        ([13 * MIB + HALF], 14 * MIB, 14 * MIB),  # what is left is too small to be split off
        ([100 * MIB + 1], 100 * MIB + 512, 102 * MIB),
    ],
)
def test_what_is_given_out_and_what_it_takes(asked: list[int], allocated: int, reserved: int) -> None:
    allocator = Allocator()
    for size in asked:
        allocator.take(size)
    assert (allocator.most_allocated, allocator.most_reserved) == (allocated, reserved)


def test_what_was_given_back_serves_what_fits_into_it_alone() -> None:
    allocator = Allocator()
    first, between = allocator.take(40 * MIB), allocator.take(40 * MIB)
    allocator.give_back(first, 40 * MIB)
    assert allocator.take(30 * MIB).address == 0
    allocator.take(44 * MIB)  # although 10 MiB are free, and 40 MiB were
    assert (allocator.reserved, allocator.allocated) == (124 * MIB, 114 * MIB)
    allocator.give_back(between, 40 * MIB)
    assert allocator.take(40 * MIB).address == between.address
    assert allocator.reserved == 124 * MIB


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_given_out_twice_and_all_comes_together_again(seed: int) -> None:
    chance, allocator = random.Random(seed), Allocator()
    held: list[tuple[Block, int]] = []
    for _ in range(300):
        if held and chance.random() < 0.5:
            allocator.give_back(*held.pop(chance.randrange(len(held))))
        else:
            size = chance.choice((1 << 10, 700 << 10, 3 * MIB, 9 * MIB, 25 * MIB)) + chance.randrange(4096)
            held.append((allocator.take(size), size))
        spans = sorted((block.address, block.address + block.size) for block, _ in held)
        assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))
        assert allocator.allocated == sum(end - begin for begin, end in spans) <= allocator.reserved
    before = allocator.reserved
    for block, size in held:
        allocator.give_back(block, size)
    sizes = (700 << 10, 3 * MIB, 25 * MIB)
    again = [allocator.take(size) for size in sizes]
    assert (allocator.reserved, allocator.allocated) == (before, sum(block.size for block in again))
