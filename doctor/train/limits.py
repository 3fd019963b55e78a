"""Numbers with which a run would learn nothing or paint nothing, said before it starts. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator

from ..model.run import Run

# The sides of the smallest picture that the models take, in pixels: one cell.
CELL = 16


def limits(run: Run) -> Iterator[tuple[str, str]]:
    """The key or field that is at fault, and a sentence about it without its full stop."""
    if "/" in run.name or "\\" in run.name:
        yield "name", f"The name {run.name} has a slash, and files are named after it; write a name without"
    if run.use_ema and not 0 <= run.ema_decay < 1:
        yield "ema_decay", f"The ema_decay {run.ema_decay:g} is not a number from 0 to below 1"
    for dataset in run.datasets:
        small = [resolution for resolution in dataset.resolutions if resolution < CELL]
        if small:
            yield (
                f"{dataset.key}/resolution",
                f"The resolution {small[0]} is below {CELL} pixels, the smallest picture",
            )
    for sample in () if run.disable_sampling else run.samples:
        if min(sample.width, sample.height) < CELL:
            yield "samples", f"A sample of {sample.width} x {sample.height} pixels is smaller than {CELL} x {CELL}"
