"""The dynamic shift of the pipelines' schedulers."""

from __future__ import annotations


def shift(cells: int) -> float:
    """The shift (mu) for a latent of so many 2 x 2 cells, for schedulers that ask for one."""
    return 0.5 + (1.15 - 0.5) * (cells - 256) / (4096 - 256)
