"""The amounts by which what a step holds grows with pictures, prompts and ranks, solved for from several sizes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from zdoctor.doctor.families.record.steps import NOTHING, PAIRS, Tokens, terms

RANKS = (1, 4, 16, 64, 128, 256)
# pictures of a batch, height and width in tokens, tokens of a prompt, rank
Setting = tuple[int, tuple[int, int], int, int]


def grid_of(settings: Sequence[Setting]) -> Any:
    """What bytes are counted for, a row for each setting."""
    counted = (Tokens(count, cells[0] * cells[1], text, rank) for count, cells, text, rank in settings)
    return np.array([terms(tokens) for tokens in counted], float)


def wide_of(settings: Sequence[Setting]) -> list[Setting]:
    """All sizes of pictures and prompts that are mined, each with each, and ranks of all sizes."""
    each = product({one[0] for one in settings}, {one[1] for one in settings}, {one[2] for one in settings}, RANKS)
    return sorted(each)


def rows_of(grid: Any, wide: Any, trails: Sequence[Sequence[int]]) -> list[list[float]]:
    """The places of a trail that are its highest in one of the wide settings, each as a row of amounts.

    Where one that is left out is highest, one of those that are kept is no more than a 2000th lower.
    """
    if not trails:
        return []
    lengths = {len(trail) for trail in trails}
    if len(lengths) > 1:
        raise SystemExit(f"the settings do not run alike: {sorted(lengths)} new tensors")
    values = np.array(trails, float)
    found, off = _fitted(grid, values)
    mined = set(values.argmax(axis=1).tolist())
    known = np.array([place for place in range(values.shape[1]) if off[place] <= 1 << 20 or place in mined])
    said = wide @ found[:, known]
    most = said.max(axis=1)
    taken = [int(said[most.argmax()].argmax())]
    while (short := most - said[:, taken].max(axis=1) - np.abs(most) / 2000).max() > 0:
        taken.append(int(said[short.argmax()].argmax()))
    worst = off[[int(known[place]) for place in taken]].max()
    if worst > 1 << 20:
        print(f"    off by up to {worst / 2**20:.0f} MiB of {values.max() / 2**20:.0f}", flush=True)
    return [_rounded(found[:, known[place]]) for place in taken]


def row_of(grid: Any, values: Sequence[int]) -> list[float]:
    """The amounts by which these values grow with each term."""
    return rows_of(grid, grid, [[value] for value in values])[0]


def _fitted(grid: Any, values: Any) -> tuple[Any, Any]:
    """The amounts for each column of values, and by how much they are off; with pairs of tokens where these are
    needed: one kind of them if that will do.
    """
    found, off = _solved(grid, values, ())
    for pairs in (*((one,) for one in PAIRS), PAIRS):
        if len(rest := np.flatnonzero(off > 1 << 20)):
            other, others_off = _solved(grid, values[:, rest], pairs)
            better = others_off < off[rest] / 2
            found[:, rest[better]], off[rest[better]] = other[:, better], others_off[better]
    return found, off


def _solved(grid: Any, values: Any, pairs: Sequence[int]) -> tuple[Any, Any]:
    varies = np.ptp(grid, axis=0) > 0
    varies[list(PAIRS)] = False
    varies[list(pairs)] = True
    varies[NOTHING] = True
    scale = grid[:, varies].max(axis=0)
    found = np.zeros((grid.shape[1], values.shape[1]))
    found[varies] = np.linalg.lstsq(grid[:, varies] / scale, values, rcond=None)[0] / scale[:, None]
    return found, np.abs(grid @ found - values).max(axis=0)


def _rounded(row: Any) -> list[float]:
    """Without kinds of pairs that it does not have."""
    found = [round(float(one), 2) + 0.0 for one in row]
    return found if any(found[NOTHING + 1 :]) else found[: NOTHING + 1]
