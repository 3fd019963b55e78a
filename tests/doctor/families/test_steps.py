"""Amounts are found by which what a step holds grows, and the highest of them in sizes that were not rehearsed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from zdoctor.doctor.families.record.steps import PAIRS, Steps, Tokens, terms
from zdoctor.maintenance.amounts import Setting, grid_of, row_of, rows_of, wide_of
from zdoctor.maintenance.mined_sizes import OF_FEW, OF_UNET, SIZES

IMAGE, TEXT, _, OF_IMAGE, OF_TEXT, RANK = range(6)


def trail(settings: Sequence[Setting], *rows: dict[int, float]) -> list[list[int]]:
    counts = [terms(Tokens(size, cells[0] * cells[1], text, rank)) for size, cells, text, rank in settings]
    return [[round(sum(row[at] * count[at] for at in row)) for row in rows] for count in counts]


@pytest.mark.parametrize(
    ("sizes", "pairs"),
    [
        (OF_FEW, ()),
        *((sizes, pairs) for sizes in (SIZES, OF_UNET) for pairs in ((), *((one,) for one in PAIRS))),
    ],
)
def test_each_amount_is_found(sizes: list[tuple[tuple[int, int], int, int]], pairs: tuple[int, ...]) -> None:
    """Pairs of a prompt's tokens, as a refiner of prompts holds, are none of all tokens; ranks are no tokens."""
    settings = [(1, *one) for one in sizes]
    row = {IMAGE: 9216.0, TEXT: 4608.0, OF_IMAGE: 10.0, OF_TEXT: 6.0, RANK: 109056.0, **dict.fromkeys(pairs, 4800.0)}
    found = row_of(grid_of(settings), [values[0] for values in trail(settings, row)])
    one = Steps({"way": {"one": {"drawing": [found]}}})
    other = (1, (40, 56), sizes[3][1] + 1, 200)
    ((value,),) = trail([other], row)
    tokens = Tokens(1, 40 * 56, other[2], 200)
    assert one.drawing("way", tokens) == pytest.approx(value, rel=1e-4)


def test_a_place_that_is_highest_in_no_rehearsed_setting_is_kept() -> None:
    """Of small pictures with a high rank: the place of most of a UNet's gradients."""
    settings = [(1, *one) for one in SIZES]
    places = {IMAGE: 100000.0}, {IMAGE: 98000.0, RANK: 6000.0}
    trails = trail(settings, *places)
    assert all(first > second for first, second in trails)
    rows = rows_of(grid_of(settings), grid_of(wide_of(settings)), trails)
    one = Steps({"way": {"one": {"drawing": rows}}})
    ((_, second),) = trail([(1, (16, 32), 256, 256)], *places)
    assert one.drawing("way", Tokens(1, 16 * 32, 256, 256)) == pytest.approx(second, rel=1e-4)
