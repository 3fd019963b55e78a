"""How many blocks of each list wait in host memory for `blocks_to_swap` of kohya's trainers. Pure.

As each class's enable_block_swap shares them out (sd-scripts 48d368fa, musubi-tuner 30c658c4); lists in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Shares = Callable[[int, Sequence[int]], tuple[int, ...]]


def of_the_last(asked: int, counts: Sequence[int]) -> tuple[int, ...]:
    """Refiners before the main blocks stay."""
    return (*(0 for _ in counts[1:]), asked)


def halves(asked: int, counts: Sequence[int]) -> tuple[int, ...]:
    """Two single blocks are as large as a double one."""
    return asked // 2, 2 * (asked - asked // 2)


def halves_and_one(asked: int, counts: Sequence[int]) -> tuple[int, ...]:
    return asked // 2, 2 * (asked - asked // 2) + 1


def by_ratio(asked: int, counts: Sequence[int]) -> tuple[int, ...]:
    doubles, singles = counts
    double = round(asked / (1 + singles / doubles / 2))
    single = round(double * singles / doubles)
    over = max(0, double - (doubles - 2)) if 2 * doubles < singles else -max(0, -(-(single - singles + 2) // 2))
    return double - over, single + 2 * over
